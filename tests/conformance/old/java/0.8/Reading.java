import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.cluster.Broker;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.*;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import org.apache.kafka.common.protocol.Errors;

/**
 * Reading with the SimpleConsumer of 0.8.2, which knows one partition of one broker, and writing with the producer
 * that was written in Scala.
 */
class Reading {
    static final Map<String, Position> positions = new HashMap<>();

    /** A place in a partition. */
    static class Position {
        SimpleConsumer consumer;
        String topic;
        long offset;
    }

    static Object run(JsonNode c) throws Exception {
        String name = c.path("consumer").asText();
        switch (c.get("do").asText()) {
            case "open": return open(c);
            case "poll": return poll(positions.get(name), c.get("ms").asInt());
            case "close": positions.remove(name).consumer.close(); return null;
            case "list_offset": return listOffset(c);
            case "commit_offset": return commitOffset(c);
            case "committed_offset": return committedOffset(c);
            case "create_topic": return leader(c, 10_000).toString(); // asking for it makes it
            default: throw new UnsupportedOperationException(c.toString());
        }
    }

    static Object produce(JsonNode c) {
        Properties settings = new Properties();
        settings.put("metadata.broker.list", c.get("bootstrap").asText());
        settings.put("request.required.acks", c.get("acks").asText());
        settings.put("compression.codec", c.get("codec").asText());
        settings.put("serializer.class", "kafka.serializer.DefaultEncoder");
        List<KeyedMessage<byte[], byte[]>> messages = new ArrayList<>();
        for (JsonNode each : c.get("records")) {
            messages.add(new KeyedMessage<>(c.get("topic").asText(), Old.bytes(each.get("key")), Old.bytes(each.get("value"))));
        }
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(settings));
        try {
            producer.send(messages);
        } finally {
            producer.close();
        }
        return null;
    }

    static short code(Throwable problem) {
        return problem instanceof Refused ? ((Refused) problem).code : Errors.forException(problem).code();
    }

    static Object open(JsonNode c) throws Exception {
        Position position = new Position();
        position.topic = c.get("topic").asText();
        position.consumer = leader(c, 10_000);
        position.offset = c.get("how").asText().equals("end") ? offsetBefore(position.consumer, c, -1)
            : c.get("how").asText().equals("time") ? offsetBefore(position.consumer, c, c.get("position").asLong())
            : c.get("position").asLong();
        positions.put(c.get("consumer").asText(), position);
        return position.offset;
    }

    static Object poll(Position at, int patience) throws Exception {
        FetchResponse answer = at.consumer.fetch(new FetchRequestBuilder().clientId("old").maxWait(patience).minBytes(1)
            .addFetch(at.topic, 0, at.offset, 1 << 20).build());
        refuse(answer.errorCode(at.topic, 0));
        List<Map<String, Object>> records = new ArrayList<>();
        for (MessageAndOffset each : answer.messageSet(at.topic, 0)) {
            if (each.offset() < at.offset) {
                continue; // a compressed set is sent whole, whatever of it was asked for
            }
            each.message().ensureValid();
            Map<String, Object> record = new HashMap<>();
            record.put("partition", 0);
            record.put("offset", each.offset());
            record.put("timestamp", null);
            record.put("key", bytes(each.message().key()));
            record.put("value", bytes(each.message().payload()));
            record.put("headers", List.of());
            records.add(record);
            at.offset = each.nextOffset();
        }
        return records;
    }

    static Object listOffset(JsonNode c) throws Exception {
        SimpleConsumer consumer = leader(c, 10_000);
        try {
            return offsetBefore(consumer, c, c.get("position").asLong());
        } finally {
            consumer.close();
        }
    }

    static long offsetBefore(SimpleConsumer consumer, JsonNode c, long time) throws Exception {
        String topic = c.get("topic").asText();
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        OffsetResponse answer = consumer.getOffsetsBefore(
            new OffsetRequest(Map.of(partition, new PartitionOffsetRequestInfo(time, 1)), kafka.api.OffsetRequest.CurrentVersion(), "old"));
        refuse(answer.errorCode(topic, 0));
        long[] found = answer.offsets(topic, 0);
        return found.length == 0 ? -1 : found[0];
    }

    static Object commitOffset(JsonNode c) throws Exception {
        TopicAndPartition partition = new TopicAndPartition(c.get("topic").asText(), 0);
        SimpleConsumer consumer = coordinator(c, 10_000);
        try {
            OffsetAndMetadata offset = new OffsetAndMetadata(c.get("position").asLong(), c.get("name").asText(), -1L);
            OffsetCommitResponse answer = consumer.commitOffsets(
                new OffsetCommitRequest(c.get("group").asText(), Map.of(partition, offset), 1, "old", (short) c.get("version").asInt()));
            refuse(((Number) answer.errors().get(partition)).shortValue());
            return null;
        } finally {
            consumer.close();
        }
    }

    static Object committedOffset(JsonNode c) throws Exception {
        TopicAndPartition partition = new TopicAndPartition(c.get("topic").asText(), 0);
        SimpleConsumer consumer = coordinator(c, 10_000);
        try {
            OffsetFetchResponse answer = consumer.fetchOffsets(
                new OffsetFetchRequest(c.get("group").asText(), List.of(partition), (short) c.get("version").asInt(), 1, "old"));
            OffsetMetadataAndError found = answer.offsets().get(partition);
            refuse(found.error());
            return List.of(found.offset(), found.metadata());
        } finally {
            consumer.close();
        }
    }

    static SimpleConsumer leader(JsonNode c, int soTimeout) throws Exception {
        String[] address = c.get("bootstrap").asText().split(":");
        SimpleConsumer any = new SimpleConsumer(address[0], Integer.parseInt(address[1]), soTimeout, 1 << 16, "old");
        try {
            for (int attempt = 0; attempt < 100; attempt++) {
                TopicMetadataResponse answer = any.send(new TopicMetadataRequest(List.of(c.get("topic").asText())));
                for (PartitionMetadata each : answer.topicsMetadata().get(0).partitionsMetadata()) {
                    Broker leader = each.leader();
                    if (each.partitionId() == 0 && leader != null) {
                        return new SimpleConsumer(leader.host(), leader.port(), soTimeout, 1 << 20, "old");
                    }
                }
                Thread.sleep(100); // no leader yet
            }
        } finally {
            any.close();
        }
        throw new IllegalStateException("no leader of " + c.get("topic"));
    }

    /** Offsets of version 0 are any broker's (ZooKeeper keeps them), those of version 1 are the coordinator's. */
    static SimpleConsumer coordinator(JsonNode c, int soTimeout) throws Exception {
        if (c.get("version").asInt() == 0) {
            return leader(c, soTimeout);
        }
        String[] address = c.get("bootstrap").asText().split(":");
        int unset = BlockingChannel.UseDefaultBufferSize();
        BlockingChannel channel = new BlockingChannel(address[0], Integer.parseInt(address[1]), unset, unset, soTimeout);
        channel.connect();
        try {
            for (int attempt = 0; attempt < 100; attempt++) {
                channel.send(new ConsumerMetadataRequest(c.get("group").asText(), ConsumerMetadataRequest.CurrentVersion(), 1, "old"));
                ConsumerMetadataResponse answer = ConsumerMetadataResponse.readFrom(channel.receive().buffer());
                if (answer.errorCode() == ErrorMapping.NoError()) {
                    return new SimpleConsumer(answer.coordinator().host(), answer.coordinator().port(), soTimeout, 1 << 16, "old");
                }
                Thread.sleep(100); // the topic of offsets is being made
            }
        } finally {
            channel.disconnect();
        }
        throw new IllegalStateException("no coordinator of " + c.get("group"));
    }

    static void refuse(short code) throws Exception {
        if (code != ErrorMapping.NoError()) {
            throw new Refused(code);
        }
    }

    /** An error of the broker; the release's own table of them lacks many. */
    static class Refused extends Exception {
        final short code;

        Refused(short code) {
            super("error code " + code + ": " + ErrorMapping.exceptionFor(code));
            this.code = code;
        }
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copied = new byte[buffer.remaining()];
        buffer.duplicate().get(copied);
        return copied;
    }
}
