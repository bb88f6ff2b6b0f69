import java.io.File
import java.io.FileInputStream
import java.io.PrintStream
import kotlin.system.measureTimeMillis
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.kerasbert.CoreException
import org.kerasbert.Options
import org.kerasbert.Settings
import org.kerasbert.Tagger
import org.kerasbert.Writer
import org.kerasbert.asking
import org.kerasbert.component1
import org.kerasbert.component2
import org.kerasbert.component3
import org.kerasbert.mapped
import org.kerasbert.range
import org.kerasbert.stream

/** Asked CLASS FILE LIBRARY, a text a line: what Kotlin's functions give; what must hold anywhere is checked here. */
fun main(arguments: Array<String>) = runBlocking(Dispatchers.Default) {
    val (kind, path, library) = arguments
    val texts = System.`in`.bufferedReader().readLines()
    val options = Options().library(library)
    val out = PrintStream(System.out, true, "UTF-8")
    val file = FileInputStream(path).use { mapped(it.fd, 0, File(path).length()) }
    if (kind == "Tagger") Tagger.open(file, options).use { tag(it, texts, out) }
    else Writer.open(file, options).use { write(it, texts, out) }
}

private suspend fun tag(tagger: Tagger, texts: List<String>, out: PrintStream) {
    val shared = kotlinx.coroutines.coroutineScope { texts.map { async { tagger.asking { answer(it) } } }.awaitAll() }
    for ((source, answer) in texts.zip(shared)) {
        for (entity in answer.entities) {
            val (text, label, score) = entity
            check(source.substring(entity.range) == text)
            out.print("$text\t$label\t$score\t")
        }
        out.println()
    }
    kotlinx.coroutines.coroutineScope {
        val long = "the happy cat sees a dog ".repeat(1_000)
        val whole = measureTimeMillis { tagger.asking { answer(long) } }
        var end: Throwable? = null
        val job = launch {
            try {
                tagger.asking { answer(long) }
            } catch (error: Throwable) {
                end = error
                throw error
            }
        }
        delay(whole / 5)
        val rest = measureTimeMillis { job.cancelAndJoin() }
        check(end is CancellationException) { "$end" }
        check(rest < whole / 2) { "a cancelled answer took $rest of $whole ms" }
    }
    try {
        tagger.asking { answer("the cat").also { cancel() }.also { throw IllegalStateException("thrown") } }
    } catch (error: IllegalStateException) {
        check(error.message == "thrown")
    }
    check(tagger.asking { answer(texts[0]) }.entities.size == shared[0].entities.size)
}

private suspend fun write(writer: Writer, texts: List<String>, out: PrintStream) {
    for (text in texts) {
        val pieces = writer.stream(text).toList()
        val whole = writer.asking { generate(text) }.text
        check(pieces.joinToString("") == whole) { "$pieces" }
        check(writer.stream(text).take(1).toList() == pieces.take(1))
        out.println(whole)
    }
    try {
        writer.stream(texts[0], Settings().beams(2)).toList()
        check(false) { "beams have pieces" }
    } catch (error: CoreException) {
        check(!error.cancelled)
    }
}
