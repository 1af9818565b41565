import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reading with the consumer that came with 0.9. */
class Reading {
    static final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    static final Map<String, Member> members = new HashMap<>();

    static Object run(JsonNode c) throws InterruptedException {
        String name = c.path("consumer").asText();
        Member member = members.get(name);
        switch (c.get("do").asText()) {
            case "open": return open(c);
            case "join": return join(c);
            case "poll": return member != null ? member.poll(c.get("ms").asLong()) : poll(consumers.get(name), c.get("ms").asLong());
            case "assignment": return member.assignment();
            case "commit": member.commit(); return null;
            case "close":
                if (members.remove(name) != null) {
                    member.close();
                } else {
                    consumers.remove(name).close();
                }
                return null;
            case "list_offset": return listOffset(c);
            case "commit_offset": return commitOffset(c);
            case "committed_offset": return committedOffset(c);
            default: throw new UnsupportedOperationException(c.toString());
        }
    }

    static Object produce(JsonNode c) {
        throw new UnsupportedOperationException("the Scala producer is not asked in this release");
    }

    static short code(Throwable problem) {
        return Errors.forException(problem).code();
    }

    static Object open(JsonNode c) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(c, Map.of());
        consumers.put(c.get("consumer").asText(), consumer);
        TopicPartition partition = new TopicPartition(c.get("topic").asText(), 0);
        consumer.assign(List.of(partition));
        Release.seek(consumer, partition, c.get("how").asText(), c.get("position").asLong());
        return consumer.position(partition);
    }

    static Object join(JsonNode c) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(c, Map.of("group.id", c.get("group").asText()));
        members.put(c.get("consumer").asText(), new Member(consumer, c.get("topic").asText()));
        return null;
    }

    static Object listOffset(JsonNode c) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(c, Map.of())) {
            TopicPartition partition = new TopicPartition(c.get("topic").asText(), 0);
            long when = c.get("position").asLong();
            consumer.assign(List.of(partition));
            Release.seek(consumer, partition, when == -1 ? "end" : when == -2 ? "start" : "time", when);
            return consumer.position(partition);
        }
    }

    static Object commitOffset(JsonNode c) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(c, Map.of("group.id", c.get("group").asText()))) {
            TopicPartition partition = new TopicPartition(c.get("topic").asText(), 0);
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(c.get("position").asLong(), c.get("name").asText())));
            return null;
        }
    }

    static Object committedOffset(JsonNode c) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(c, Map.of("group.id", c.get("group").asText()))) {
            TopicPartition partition = new TopicPartition(c.get("topic").asText(), 0);
            consumer.assign(List.of(partition));
            OffsetAndMetadata found = consumer.committed(partition);
            return found == null ? List.of(-1, "") : List.of(found.offset(), found.metadata());
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode c, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", c.get("bootstrap").asText(), "group.id", "none",
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "heartbeat.interval.ms", "300",
            "fetch.max.wait.ms", "100", "metadata.max.age.ms", "2000"));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<Map<String, Object>> poll(KafkaConsumer<byte[], byte[]> consumer, long patience) {
        List<Map<String, Object>> records = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : consumer.poll(patience)) {
            Map<String, Object> record = new HashMap<>(); // Map.of takes no null
            record.put("partition", each.partition());
            record.put("offset", each.offset());
            record.put("key", each.key());
            record.put("value", each.value());
            Release.describe(each, record);
            records.add(record);
        }
        return records;
    }
}
