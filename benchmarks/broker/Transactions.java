import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Commits transactions of ten 1 KiB records: BOOTSTRAP TOPIC TRANSACTIONAL-ID WARMUP COUNT; prints rate, p50 and p99. */
public class Transactions {
    static final byte[] VALUE = new byte[1024];

    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "transactional.id", arguments[2]);
        int count = Integer.parseInt(arguments[4]);
        long[] took = new long[count];
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int n = Integer.parseInt(arguments[3]); n > 0; n--) {
                transaction(producer, arguments[1]);
            }
            System.out.println("warm");
            new java.util.Scanner(System.in).nextLine(); // measured from here
            long began = System.nanoTime();
            for (int n = 0; n < count; n++) {
                long start = System.nanoTime();
                transaction(producer, arguments[1]);
                took[n] = System.nanoTime() - start;
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            Arrays.sort(took);
            System.out.printf("%.2f %.3f %.3f%n", count / seconds, took[count / 2] / 1e6, took[count * 99 / 100] / 1e6);
        }
    }

    static void transaction(KafkaProducer<byte[], byte[]> producer, String topic) {
        producer.beginTransaction();
        for (int n = 0; n < 10; n++) {
            producer.send(new ProducerRecord<>(topic, VALUE));
        }
        producer.commitTransaction();
    }
}
