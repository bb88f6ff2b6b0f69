package org.kerasbert.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.MainScope
import kotlinx.coroutines.async
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import org.kerasbert.Classifier
import org.kerasbert.CoreException
import org.kerasbert.Options
import org.kerasbert.asking
import org.kerasbert.component1
import org.kerasbert.component2
import org.kerasbert.mapped

/** A text to its labels, by src/main/assets/model.tflite of `kerasbert-mobile compress`. */
class MainActivity : Activity() {
    private val scope = MainScope()

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        val text = EditText(this)
        val button = Button(this).apply { setText("Classify") }
        val said = TextView(this)
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        for (view in listOf(text, button, said)) column.addView(view)
        column.setFitsSystemWindows(true)
        setContentView(column)

        val classifier = scope.async(Dispatchers.IO) {
            runCatching {
                assets.openFd("model.tflite").use {
                    Classifier.open(mapped(it.fileDescriptor, it.startOffset, it.declaredLength), Options().threads(2))
                }
            }
        }
        button.setOnClickListener {
            scope.launch {
                said.text = try {
                    val answer = classifier.await().getOrThrow().asking { answer(text.text.toString()) }
                    answer.labels.joinToString("\n") { (name, score) -> "$name %.3f".format(score) }
                } catch (error: CoreException) {
                    error.message
                }
            }
        }
    }

    override fun onDestroy() {
        scope.cancel()
        super.onDestroy()
    }
}
