import java.lang.management.ManagementFactory;
import java.util.*;
import kafka.consumer.*;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/** HighLevelRate ZOOKEEPER GROUP TOPIC COUNT: seconds to the first message, from it to the last, and of processor time. */
public class HighLevelRate {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", args[0]);
        settings.put("group.id", args[1]);
        settings.put("auto.offset.reset", "smallest");
        int count = Integer.parseInt(args[3]);
        long begun = System.nanoTime();
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        KafkaStream<byte[], byte[]> stream = connector.createMessageStreams(Map.of(args[2], 1)).get(args[2]).get(0);
        ConsumerIterator<byte[], byte[]> messages = stream.iterator();
        long bytes = messages.next().message().length;
        long first = System.nanoTime();
        long cpu = cpu();
        for (int read = 1; read < count; read++) {
            bytes += messages.next().message().length;
        }
        long last = System.nanoTime();
        System.out.println((first - begun) / 1e9 + " " + (last - first) / 1e9 + " " + (cpu() - cpu) / 1e9 + " " + bytes);
        connector.shutdown();
    }

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
