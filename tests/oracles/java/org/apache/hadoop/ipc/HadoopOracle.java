package org.apache.hadoop.ipc;

import java.util.List;
import oracles.Commands;
import org.apache.hadoop.conf.Configuration;

/**
 * Lets a test drive the classes of Hadoop's fair call queue.
 *
 * It is in Hadoop's package, because some of their methods are for this package only.
 */
public final class HadoopOracle {
    private static int namespaces;

    private HadoopOracle() {
    }

    public static void main(String[] arguments) throws Exception {
        Commands commands = new Commands();
        new Scheduler().addTo(commands);
        new Queue().addTo(commands);
        commands.add("multiplexer", words -> turns(words.get(0), Integer.parseInt(words.get(1))));
        commands.add("cost", words -> cost(words.get(0), words.get(1)));
        commands.serve();
        System.exit(0); // a scheduler's timer is no daemon
    }

    /** Returns a prefix of settings that nothing else has. Hadoop registers its metrics by it. */
    static String newNamespace() {
        return "oracle" + namespaces++;
    }

    /** "multiplexer WEIGHTS COUNT" returns the levels that get the first turns. */
    private static String turns(String weights, int count) {
        String namespace = newNamespace();
        Configuration settings = new Configuration(false);
        settings.set(namespace + ".faircallqueue.multiplexer.weights", weights);
        RpcMultiplexer multiplexer =
            new WeightedRoundRobinMultiplexer(weights.split(",").length, namespace, settings);
        StringBuilder turns = new StringBuilder();
        for (int turn = 0; turn < count; turn++) {
            turns.append(turn == 0 ? "" : ",").append(multiplexer.getAndAdvanceCurrentIndex());
        }
        return turns.toString();
    }

    /** "cost WEIGHTS TIMES_US" returns the cost of a call. Both have a number for each of Hadoop's phases, in order. */
    private static long cost(String weights, String timesUs) {
        String namespace = newNamespace();
        Configuration settings = new Configuration(false);
        ProcessingDetails details = new ProcessingDetails(java.util.concurrent.TimeUnit.MICROSECONDS);
        ProcessingDetails.Timing[] phases = ProcessingDetails.Timing.values();
        for (ProcessingDetails.Timing phase : phases) {
            String weight = weights.split(",")[phase.ordinal()];
            settings.set(namespace + ".weighted-cost." + phase.name().toLowerCase(), weight);
            details.set(phase, Long.parseLong(timesUs.split(",")[phase.ordinal()]));
        }
        WeightedTimeCostProvider provider = new WeightedTimeCostProvider();
        provider.init(namespace, settings);
        return provider.getCost(details);
    }
}
