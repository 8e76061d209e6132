package org.apache.hadoop.ipc;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import oracles.Commands;
import org.apache.hadoop.conf.Configuration;

/**
 * The decay scheduler, which decays only when it is told to:
 *
 *   scheduler LEVELS FACTOR PERCENTS SERVICE_USERS   begins with a new one that backs off by response times; without
 *                                                    PERCENTS, the thresholds are Hadoop's
 *   charge USER COST
 *   respond LEVEL QUEUE_US PROCESSING_US
 *   decay
 *   totals                                           decayed, raw, and both of service users
 *   costs                                            USER=DECAYED,...
 *   schedule                                         the levels since the last decay, as JSON
 *   level USER                                       of the user's next call
 *   averages                                         the mean response time of each level in ms
 *   backs-off                                        whether calls of each level are refused
 */
final class Scheduler {
    private static final String NEVER_MS = "2000000000";
    private static final Method ADD_COST = addCost();

    private DecayRpcScheduler scheduler;
    private int levels;

    void addTo(Commands commands) {
        commands.add("scheduler",
            words -> begin(Integer.parseInt(words.get(0)), words.get(1), words.get(2), words.get(3)));
        commands.add("charge", words -> {
            ADD_COST.invoke(scheduler, words.get(0), Long.parseLong(words.get(1)));
            return "";
        });
        commands.add("respond", words -> respond(Integer.parseInt(words.get(0)), Long.parseLong(words.get(1)),
            Long.parseLong(words.get(2))));
        commands.add("decay", words -> {
            scheduler.forceDecay();
            return "";
        });
        commands.add("totals", words -> scheduler.getTotalCallVolume() + "," + scheduler.getTotalRawCallVolume() + ","
            + scheduler.getTotalServiceUserCallVolume() + "," + scheduler.getTotalServiceUserRawCallVolume());
        commands.add("costs", words -> costs());
        commands.add("schedule", words -> scheduler.getSchedulingDecisionSummary());
        commands.add("level", words -> scheduler.getPriorityLevel(new Call("", words.get(0), 0)));
        commands.add("averages", words -> Arrays.stream(scheduler.getAverageResponseTime())
            .mapToObj(Double::toString).collect(Collectors.joining(",")));
        commands.add("backs-off", words -> IntStream.range(0, levels)
            .mapToObj(level -> scheduler.shouldBackOff(new Call("", "", level)) ? "1" : "0")
            .collect(Collectors.joining(",")));
    }

    private String begin(int newLevels, String factor, String percents, String serviceUsers) {
        if (scheduler != null) {
            scheduler.stop();
        }
        levels = newLevels;
        String namespace = HadoopOracle.newNamespace();
        Configuration settings = new Configuration(false);
        settings.set(namespace + ".decay-scheduler.period-ms", NEVER_MS);
        settings.set(namespace + ".decay-scheduler.decay-factor", factor);
        settings.set(namespace + ".decay-scheduler.service-users", serviceUsers);
        settings.set(namespace + ".decay-scheduler.backoff.responsetime.enable", "true");
        if (!percents.isEmpty()) {
            settings.set(namespace + ".decay-scheduler.thresholds", percents);
        }
        scheduler = new DecayRpcScheduler(levels, namespace, settings);
        return "";
    }

    private String respond(int level, long queueUs, long processingUs) {
        ProcessingDetails details = new ProcessingDetails(TimeUnit.MICROSECONDS);
        details.set(ProcessingDetails.Timing.QUEUE, queueUs);
        details.set(ProcessingDetails.Timing.PROCESSING, processingUs);
        scheduler.addResponseTime("call", new Call("", "responder", level), details);
        return "";
    }

    private String costs() {
        Map<String, Long> sorted = new TreeMap<>();
        scheduler.getCallCostSnapshot().forEach((user, cost) -> sorted.put(user.toString(), cost));
        return sorted.entrySet().stream().map(Object::toString).collect(Collectors.joining(","));
    }

    private static Method addCost() {
        try {
            Method method = DecayRpcScheduler.class.getDeclaredMethod("addCost", Object.class, long.class);
            method.setAccessible(true);
            return method;
        } catch (NoSuchMethodException error) {
            throw new IllegalStateException(error);
        }
    }
}
