import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A consumer that polls until stdin ends, and then leaves. Arguments: TOPIC NAME=VALUE... */
public class OneMember {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (int i = 1; i < args.length; i++) settings.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("key.deserializer", bytes);
        settings.put("value.deserializer", bytes);
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) { }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(args[0]), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    System.out.println("assigned " + new ArrayList<>(partitions));
                }

                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    System.out.println("revoked " + new ArrayList<>(partitions));
                }
            });
            while (!ended.get()) consumer.poll(Duration.ofMillis(50));
        }
    }
}
