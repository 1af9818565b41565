import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.*;

/**
 * Apache Kafka's own client for the conformance grid: a JSON object a line, commands on stdin, answers on stdout.
 *
 * A command is {"do": NAME, ...}; its answer is {"ok": ...} or {"error": TEXT, "code": KAFKA'S ERROR CODE}. Bytes are
 * base64. It compiles against every kafka-clients from 2.8 on, so what a version deprecates is used all the same.
 */
@SuppressWarnings("deprecation")
public class Grid {
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    static KafkaProducer<byte[], byte[]> writer;

    public static void main(String[] arguments) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", run(JSON.readTree(line)));
            } catch (Exception problem) {
                Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
                Throwable root = cause;
                while (root.getCause() != null) {
                    root = root.getCause();
                }
                answer.put("error", root == cause ? cause.toString() : cause + ": " + root);
                answer.put("code", Errors.forException(cause).code());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        consumers.values().forEach(each -> each.close(Duration.ZERO));
    }

    static Object run(JsonNode c) throws Exception {
        String consumer = c.path("consumer").asText(), producer = c.path("producer").asText();
        switch (c.get("do").asText()) {
            case "produce": return produce(c);
            case "write": return write(c);
            case "open": return open(c);
            case "join": return join(c);
            case "poll": return poll(consumers.get(consumer), Duration.ofMillis(c.get("ms").asLong()));
            case "assignment":
                return consumers.get(consumer).assignment().stream().map(TopicPartition::partition).toList();
            case "commit": consumers.get(consumer).commitSync(PATIENCE); return null;
            case "transactional": return transactional(c);
            case "begin_transaction": producers.get(producer).beginTransaction(); return null;
            case "send": return send(producers.get(producer), c);
            case "send_offsets": return sendOffsets(producers.get(producer), consumers.get(consumer));
            case "commit_transaction": producers.get(producer).commitTransaction(); return null;
            case "abort_transaction": producers.get(producer).abortTransaction(); return null;
            case "close_producer": producers.remove(producer).close(Duration.ZERO); return null;
            case "close": consumers.remove(consumer).close(); return null;
            default:
                try (Admin admin = Admin.create(secured(c, Map.of("bootstrap.servers", c.get("bootstrap").asText())))) {
                    return administer(admin, c, c.path("topic").asText(), c.path("group").asText());
                }
        }
    }

    static Object administer(Admin admin, JsonNode c, String topic, String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition partition = new TopicPartition(topic, 0);
        switch (c.get("do").asText()) {
            case "create_topic":
                return admin.createTopics(List.of(new NewTopic(topic, c.get("partitions").asInt(), (short) 1))).all().get();
            case "delete_topic":
                return admin.deleteTopics(List.of(topic)).all().get();
            case "add_partitions":
                return admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(c.get("partitions").asInt()))).all().get();
            case "list_offset":
                OffsetSpec spec = spec(c.get("position").asLong());
                return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(c.get("position").asLong());
                return admin.deleteRecords(Map.of(partition, before)).all().get();
            case "topic_settings":
                return admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                    .filter(each -> each.value() != null).collect(Collectors.toMap(ConfigEntry::name, ConfigEntry::value));
            case "set_topic_setting":
                ConfigEntry entry = new ConfigEntry(c.get("name").asText(), c.get("value").asText());
                AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                return admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            case "groups":
                return admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).toList();
            case "group_state":
                ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                return Map.of("state", found.state().toString(), "members", found.members().size());
            case "delete_group":
                return admin.deleteConsumerGroups(List.of(group)).all().get();
            default:
                throw new IllegalArgumentException(c.toString());
        }
    }

    /** Settings with the command's options of security. */
    static Map<String, Object> secured(JsonNode c, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        c.path("secure").path("options").fields().forEachRemaining(each -> all.put(each.getKey(), each.getValue().asText()));
        Object url = all.get("sasl.oauthbearer.token.endpoint.url");
        if (url != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url.toString());
        }
        Object handler = all.get("sasl.login.callback.handler.class");
        if (handler != null && !exists(handler.toString())) {
            TokenHandler.token = c.path("secure").path("token").asText();
            all.put("sasl.login.callback.handler.class", TokenHandler.class);
        }
        return all;
    }

    static boolean exists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException unknown) {
            return false;
        }
    }

    /** Gives the client the token of the command: clients before 3.1 leave it to their users to get one. */
    public static class TokenHandler implements AuthenticateCallbackHandler {
        static volatile String token;

        @Override public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> modules) {}
        @Override public void close() {}

        @Override public void handle(Callback[] callbacks) throws IOException {
            for (Callback each : callbacks) {
                if (each instanceof OAuthBearerTokenCallback wanted) {
                    JsonNode claims = JSON.readTree(Base64.getUrlDecoder().decode(token.split("\\.")[1]));
                    wanted.token(new Token(token, claims.get("sub").asText(), claims.get("exp").asLong() * 1000));
                }
            }
        }

        record Token(String value, String principalName, long lifetimeMs) implements OAuthBearerToken {
            @Override public Set<String> scope() { return Set.of(); }
            @Override public Long startTimeMs() { return null; }
        }
    }

    static OffsetSpec spec(long when) {
        return when == -1 ? OffsetSpec.latest() : when == -2 ? OffsetSpec.earliest() : OffsetSpec.forTimestamp(when);
    }

    static Object produce(JsonNode c) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", c.get("bootstrap").asText(),
            "compression.type", c.get("codec").asText(), "acks", c.get("acks").asText(),
            "enable.idempotence", c.get("idempotent").asBoolean(), "linger.ms", 20, "max.request.size", 10 << 20);
        try (var producer = new KafkaProducer<>(secured(c, settings), new ByteArraySerializer(), new ByteArraySerializer())) {
            return send(producer, c);
        }
    }

    static Object send(KafkaProducer<byte[], byte[]> producer, JsonNode c) throws Exception {
        Integer partition = c.get("partition").isNull() ? null : c.get("partition").asInt();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode each : c.get("records")) {
            Long timestamp = each.get("timestamp").isNull() ? null : each.get("timestamp").asLong();
            List<Header> headers = StreamSupport.stream(each.get("headers").spliterator(), false)
                .map(h -> (Header) new RecordHeader(h.get("name").asText(), bytes(h.get("value")))).toList();
            sent.add(producer.send(new ProducerRecord<>(c.get("topic").asText(), partition, timestamp,
                bytes(each.get("key")), bytes(each.get("value")), headers)));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return null;
    }

    static Object transactional(JsonNode c) {
        Map<String, Object> settings = Map.of("bootstrap.servers", c.get("bootstrap").asText(),
            "transactional.id", c.get("name").asText(), "max.block.ms", PATIENCE.toMillis());
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(c.get("producer").asText(), producer);
        producer.initTransactions();
        return null;
    }

    static Object sendOffsets(KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        consumer.assignment().forEach(each -> positions.put(each, new OffsetAndMetadata(consumer.position(each))));
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        return null;
    }

    /** Writes with one idempotent producer that lives as long as the program. */
    static Object write(JsonNode c) throws Exception {
        if (writer == null) {
            Map<String, Object> settings = Map.of("bootstrap.servers", c.get("bootstrap").asText(), "acks", "all",
                "enable.idempotence", true, "linger.ms", 2, "request.timeout.ms", 5_000, "delivery.timeout.ms", 50_000);
            writer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode each : c.get("records")) {
            sent.add(writer.send(new ProducerRecord<>(c.get("topic").asText(), each.get("partition").asInt(), null, bytes(each.get("value")))));
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return null;
    }

    static byte[] bytes(JsonNode text) throws UncheckedIOException {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static Object open(JsonNode c) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(c, Map.of("isolation.level", c.get("isolation").asText()));
        TopicPartition partition = new TopicPartition(c.get("topic").asText(), 0);
        long position = c.get("position").asLong();
        consumer.assign(List.of(partition));
        switch (c.get("how").asText()) {
            case "offset": consumer.seek(partition, position); break;
            case "time":
                consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, position)).get(partition).offset());
                break;
            default: consumer.seekToEnd(List.of(partition));
        }
        return consumer.position(partition, PATIENCE);
    }

    static Object join(JsonNode c) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("group.id", c.get("group").asText()));
        if (c.get("strategy").asText().equals("cooperative-sticky")) {
            settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        }
        if (!c.get("instance").asText().isEmpty()) {
            settings.put("group.instance.id", c.get("instance").asText());
        }
        if (c.get("protocol").asText().equals("consumer")) {
            settings.put("group.protocol", "consumer");
            settings.put("heartbeat.interval.ms", null);
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(c, settings);
        if (c.get("regex").asText().isEmpty()) {
            consumer.subscribe(List.of(c.get("topic").asText()));
        } else {  // clients before 4.0 do not have the class
            Class<?> pattern = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            Object regex = pattern.getConstructor(String.class).newInstance(c.get("regex").asText());
            consumer.getClass().getMethod("subscribe", pattern).invoke(consumer, regex);
        }
        return null;
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode c, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", c.get("bootstrap").asText(),
            "enable.auto.commit", false, "auto.offset.reset", "earliest", "heartbeat.interval.ms", 300,
            "fetch.max.wait.ms", 100));
        settings.putAll(more);
        settings.values().removeIf(Objects::isNull);
        var consumer = new KafkaConsumer<>(secured(c, settings), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumers.put(c.get("consumer").asText(), consumer);
        return consumer;
    }

    static Object poll(KafkaConsumer<byte[], byte[]> consumer, Duration patience) {
        List<Map<String, Object>> records = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : consumer.poll(patience)) {
            Map<String, Object> record = new HashMap<>(); // Map.of takes no null
            record.put("partition", each.partition());
            record.put("offset", each.offset());
            record.put("timestamp", each.timestamp());
            record.put("key", each.key());
            record.put("value", each.value());
            record.put("headers", StreamSupport.stream(each.headers().spliterator(), false).map(header -> {
                Map<String, Object> pair = new HashMap<>();
                pair.put("name", header.key());
                pair.put("value", header.value());
                return pair;
            }).toList());
            records.add(record);
        }
        return records;
    }
}
