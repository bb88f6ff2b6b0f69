package org.kerasbert;

/** How a file is run. What is not set is the default. */
public final class Options {
    String library;
    int threads;
    int rows;
    String delegate;

    /** LiteRT's library: a path or a name that the platform's loader knows; by default libLiteRt.so, which is in LiteRT's AAR. */
    public Options library(String name) {
        library = name;
        return this;
    }

    /** Threads of the network, 1 to 256; 1 by default. */
    public Options threads(int count) {
        threads = atLeastOne(count, "threads");
        return this;
    }

    /** The most rows of the model's length that an input may take, 1 to 1,024, which is the default: longer ones are refused. */
    public Options rows(int count) {
        rows = atLeastOne(count, "rows");
        return this;
    }

    /**
     * What computes: "xnnpack" (the processor), the default, or LiteRT's accelerators "gpu", which leaves to the processor what it
     * does not take, and "npu", which takes all of the network or is refused.
     */
    public Options delegate(String name) {
        delegate = name;
        return this;
    }

    private static int atLeastOne(int count, String name) { // 0 would be the default in silence
        if (count < 1) throw new IllegalArgumentException(name + " is " + count + ", expected at least 1");
        return count;
    }
}
