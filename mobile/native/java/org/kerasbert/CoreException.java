package org.kerasbert;

/** What the portable core says of a call that failed: what, received, expected. */
public final class CoreException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private static final int UNSUPPORTED = 3; // KB_UNSUPPORTED

    private static final int CANCELLED = 5; // KB_CANCELLED

    /** Whether only the Python runtime knows this file, tokenizer or answer. */
    public final boolean unsupported;

    /** Whether {@link Runner#cancel} ended the answer. */
    public final boolean cancelled;

    CoreException(String message) {
        this(message, 0);
    }

    private CoreException(String message, int status) {
        super(status == UNSUPPORTED ? "the portable core does not read " + message : message);
        unsupported = status == UNSUPPORTED;
        cancelled = status == CANCELLED;
    }

    CoreException(byte[] message, int status) { // of jni.c
        this(Core.text(message), status);
    }
}
