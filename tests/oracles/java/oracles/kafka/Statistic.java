package oracles.kafka;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import oracles.Commands;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SimpleRate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.metrics.stats.WindowedSum;

/**
 * One of Kafka's statistics, by itself:
 *
 *   statistic KIND SAMPLES WINDOW_MS LIMIT   begins with a new one
 *   record VALUE
 *   measure                                  changes it: it purges samples
 *   window                                   the same; the window of a rate in ms
 *   peek                                     what `measure` would return
 */
final class Statistic {
    private interface Step {
        double apply(MeasurableStat statistic);
    }

    private final Clock clock;
    private final List<Step> history = new ArrayList<>();
    private String kind;
    private MetricConfig config;
    private MeasurableStat statistic;

    Statistic(Clock clock) {
        this.clock = clock;
    }

    void addTo(Commands commands) {
        commands.add("statistic", words -> begin(words.get(0), Integer.parseInt(words.get(1)),
            Long.parseLong(words.get(2)), Double.parseDouble(words.get(3))));
        commands.add("record", words -> record(Double.parseDouble(words.get(0))));
        commands.add("measure", words -> measure());
        commands.add("window", words -> window());
        commands.add("peek", words -> peek());
    }

    private String begin(String newKind, int samples, long windowMs, double limit) {
        kind = newKind;
        config = new MetricConfig().samples(samples).timeWindow(windowMs, TimeUnit.MILLISECONDS)
            .quota(Quota.upperBound(limit));
        statistic = empty();
        history.clear();
        return "";
    }

    private String record(double value) {
        long nowMs = clock.milliseconds();
        take(one -> {
            one.record(config, value, nowMs);
            return 0;
        });
        return "";
    }

    private double measure() {
        long nowMs = clock.milliseconds();
        return take(one -> one.measure(config, nowMs));
    }

    private long window() {
        long nowMs = clock.milliseconds();
        return (long) take(one -> ((Rate) one).windowSize(config, nowMs));
    }

    private double peek() {
        MeasurableStat copy = empty();
        history.forEach(step -> step.apply(copy));
        return copy.measure(config, clock.milliseconds());
    }

    private double take(Step step) {
        history.add(step);
        return step.apply(statistic);
    }

    private MeasurableStat empty() {
        switch (kind) {
            case "rate":
                return new Rate();
            case "simple-rate":
                return new SimpleRate();
            case "sum":
                return new WindowedSum();
            case "average":
                return new Avg();
            case "token-bucket":
                return new TokenBucket();
            default:
                throw new IllegalArgumentException(kind);
        }
    }
}
