package oracles.kafka;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that stands still until it is set. */
final class Clock implements Time {
    private long nowMs;

    void set(long nowMs) {
        this.nowMs = nowMs;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000;
    }

    @Override
    public void sleep(long ms) {
        throw new UnsupportedOperationException("nothing may sleep here");
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nothing may wait here");
    }
}
