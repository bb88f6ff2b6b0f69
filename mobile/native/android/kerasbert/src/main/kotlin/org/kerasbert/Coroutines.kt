package org.kerasbert

import java.io.FileDescriptor
import java.io.FileInputStream
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import kotlin.coroutines.cancellation.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.channels.trySendBlocking
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.channelFlow
import kotlinx.coroutines.isActive

/** Where `text.substring(range)` is the part. */
val Span.range: IntRange
    get() = start until end

/** Where `context.substring(range)` is the answer. */
val QuestionAnswerer.Answer.range: IntRange
    get() = start until end

/** `for ((name, score) in answer.labels)`. */
operator fun Label.component1(): String = name

operator fun Label.component2(): Double = score

/** `for ((text, label, score) in answer.entities)`. */
operator fun Span.component1(): String = text

operator fun Span.component2(): String = label

operator fun Span.component3(): Double = score

/** A part of a file in memory, such as an asset that is not compressed: fileDescriptor, startOffset and declaredLength of its AssetFileDescriptor. */
fun mapped(file: FileDescriptor, start: Long, size: Long): ByteBuffer =
    FileInputStream(file).channel.use { it.map(FileChannel.MapMode.READ_ONLY, start, size) }

/**
 * Asks on a thread of Dispatchers.IO: `classifier.asking { answer(text) }`. Coroutines that share a runner take turns. Where the coroutine is
 * cancelled its own answer ends, and no other's.
 */
suspend fun <R : Runner, T> R.asking(block: R.() -> T): T = coroutineScope {
    val turn = Turn()
    val asked =
        async(Dispatchers.IO) {
            synchronized(this@asking) {
                ensureActive()
                try {
                    turn.set(true)
                    block()
                } catch (error: CoreException) {
                    if (error.cancelled && !isActive) throw CancellationException(error.message, error)
                    throw error
                } finally {
                    turn.set(false)
                }
            }
        }
    try {
        asked.await()
    } catch (error: CancellationException) {
        turn.whileOn { cancel() }
        throw error
    }
}

/** Whether an answer is under way. */
private class Turn {
    private var on = false

    @Synchronized
    fun set(value: Boolean) {
        on = value
    }

    @Synchronized
    fun whileOn(then: () -> Unit) {
        if (on) then()
    }
}

/** The pieces of a text as its tokens come, whole characters; joined they are the text. Who stops collecting ends it. Not with beams. */
fun Writer.stream(text: String, settings: Settings = Settings()): Flow<String> = channelFlow {
    var left = false
    try {
        asking { generate(text, settings) { piece -> trySendBlocking(piece).isSuccess.also { left = !it } } }
    } catch (error: CoreException) {
        if (!left) throw error
    }
}
