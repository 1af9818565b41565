import java.nio.charset.StandardCharsets;
import java.util.*;
import kafka.consumer.*;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * The high-level consumer of 0.8.2: HighLevel ZOOKEEPER GROUP white|black|topic NAME STREAMS [key=value ...].
 * Prints "ready", then a line "stream topic partition offset value" for each message. The line "commit" on standard
 * input commits, the end of it shuts down.
 */
public class HighLevel {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", args[0]);
        settings.put("group.id", args[1]);
        for (int i = 5; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        int count = Integer.parseInt(args[4]);
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        List<KafkaStream<byte[], byte[]>> streams = args[2].equals("topic")
            ? connector.createMessageStreams(Map.of(args[3], count)).get(args[3])
            : connector.createMessageStreamsByFilter(
                args[2].equals("white") ? new Whitelist(args[3]) : new Blacklist(args[3]), count);
        for (int i = 0; i < streams.size(); i++) {
            KafkaStream<byte[], byte[]> stream = streams.get(i);
            int number = i;
            Thread reader = new Thread(() -> read(number, stream));
            reader.setDaemon(true);
            reader.start();
        }
        say("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            if (lines.nextLine().equals("commit")) {
                connector.commitOffsets();
                say("committed");
            }
        }
        connector.shutdown();
        say("ended");
    }

    static void read(int number, KafkaStream<byte[], byte[]> stream) {
        for (MessageAndMetadata<byte[], byte[]> each : stream) {
            String value = new String(each.message(), StandardCharsets.UTF_8);
            say(number + " " + each.topic() + " " + each.partition() + " " + each.offset() + " " + value);
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
