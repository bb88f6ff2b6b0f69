package org.kerasbert;

/** What the portable core says of a call that failed: what, received, expected. */
public final class CoreException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Whether only the Python runtime knows this file, tokenizer or answer. */
    public final boolean unsupported;

    CoreException(String message, boolean unsupported) {
        super(unsupported ? "the portable core does not read " + message : message);
        this.unsupported = unsupported;
    }

    CoreException(byte[] message, boolean unsupported) { // of jni.c
        this(Core.text(message), unsupported);
    }
}
