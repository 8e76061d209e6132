package org.apache.hadoop.ipc;

import java.util.Arrays;
import java.util.stream.Collectors;
import oracles.Commands;
import org.apache.hadoop.conf.Configuration;

/**
 * The fair call queue:
 *
 *   queue LEVELS CAPACITY CAPACITY_WEIGHTS MULTIPLEXER_WEIGHTS   begins with a new one
 *   add NAME LEVEL                                               returns how it is refused, or ""
 *   put NAME LEVEL                                               the same; it must find room
 *   poll                                                         returns the name of the next call, or ""
 *   sizes                                                        of all levels
 *   overflows                                                    how often each level was full
 */
final class Queue {
    private FairCallQueue<Call> queue;

    void addTo(Commands commands) {
        commands.add("queue", words -> begin(Integer.parseInt(words.get(0)), Integer.parseInt(words.get(1)),
            words.get(2), words.get(3)));
        commands.add("add", words -> add(new Call(words.get(0), "", Integer.parseInt(words.get(1)))));
        commands.add("put", words -> {
            queue.put(new Call(words.get(0), "", Integer.parseInt(words.get(1))));
            return "";
        });
        commands.add("poll", words -> {
            Call call = queue.poll();
            return call == null ? "" : call.name;
        });
        commands.add("sizes", words -> Arrays.stream(queue.getQueueSizes())
            .mapToObj(Integer::toString).collect(Collectors.joining(",")));
        commands.add("overflows", words -> Arrays.stream(queue.getOverflowedCalls())
            .mapToObj(Long::toString).collect(Collectors.joining(",")));
    }

    private String begin(int levels, int capacity, String capacityWeights, String weights) {
        String namespace = HadoopOracle.newNamespace();
        Configuration settings = new Configuration(false);
        settings.set(namespace + ".faircallqueue.multiplexer.weights", weights);
        int[] capacities = Arrays.stream(capacityWeights.split(",")).mapToInt(Integer::parseInt).toArray();
        queue = new FairCallQueue<>(levels, capacity, namespace, capacities, false, settings);
        return "";
    }

    private String add(Call call) {
        try {
            queue.add(call);
            return "";
        } catch (CallQueueManager.CallQueueOverflowException overflow) {
            return overflow.getCause().getMessage();
        }
    }
}
