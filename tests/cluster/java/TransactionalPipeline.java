import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies one topic to another, partition by partition, with the offsets of its group in the same transactions, until its
 * input ends. Arguments: bootstrap, source, target, group, transactional id, partitions, client settings as name=value.
 *
 *   committed N      a transaction is committed; N records of the source are done in all
 *   aborted N WHY    begins again at N
 *   again WHY        the same call once more
 */
public class TransactionalPipeline {
    static final Duration POLL = Duration.ofMillis(20);

    final String source, target, group, transactionalId;
    final List<TopicPartition> partitions;
    final Map<String, Object> common = new HashMap<>();
    final KafkaConsumer<byte[], byte[]> consumer;
    KafkaProducer<byte[], byte[]> producer;

    TransactionalPipeline(String[] args) {
        common.put("bootstrap.servers", args[0]);
        source = args[1];
        target = args[2];
        group = args[3];
        transactionalId = args[4];
        partitions = IntStream.range(0, Integer.parseInt(args[5])).mapToObj(each -> new TopicPartition(source, each)).toList();
        for (int i = 6; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            common.put(setting[0], setting[1]);
        }
        Map<String, Object> settings = new HashMap<>(common);
        settings.putAll(Map.of("group.id", group, "enable.auto.commit", false, "auto.offset.reset", "earliest",
            "isolation.level", "read_committed"));
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(partitions);
    }

    public static void main(String[] args) throws Exception {
        TransactionalPipeline pipeline = new TransactionalPipeline(args);
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ignored) { }
            System.exit(0);
        });
        ending.setDaemon(true);
        ending.start();
        boolean isNew = true;
        while (true) {
            try {
                if (isNew) {
                    pipeline.begin();
                    isNew = false;
                }
                pipeline.copy();
            } catch (KafkaException error) {
                isNew = !pipeline.abort(error);
            }
        }
    }

    /** Starts with a new producer, at the committed offsets. */
    void begin() {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        Map<String, Object> settings = new HashMap<>(common);
        settings.putAll(Map.of("transactional.id", transactionalId, "linger.ms", 2));
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        rewind();
    }

    void copy() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> each : records) {
            producer.send(new ProducerRecord<>(target, each.partition(), null, each.value()));
            offsets.put(new TopicPartition(source, each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        while (true) {
            try {
                producer.commitTransaction();
                break;
            } catch (TimeoutException error) {
                say("again " + error);
            }
        }
        say("committed " + partitions.stream().mapToLong(consumer::position).sum());
    }

    /** Aborts the transaction and goes back to the committed offsets; false when that takes a new producer. */
    boolean abort(KafkaException error) {
        try {
            producer.abortTransaction();
            say("aborted " + rewind() + " " + error);
            return true;
        } catch (KafkaException | IllegalStateException | NullPointerException refused) {
            say("aborted 0 " + error + ", then " + refused);
            return false;
        }
    }

    long rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(Set.copyOf(partitions));
        long sum = 0;
        for (TopicPartition each : partitions) {
            OffsetAndMetadata known = committed.get(each);
            consumer.seek(each, known == null ? 0 : known.offset());
            sum += known == null ? 0 : known.offset();
        }
        return sum;
    }

    static void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }
}
