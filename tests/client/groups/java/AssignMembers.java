import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import java.nio.ByteBuffer;
import java.util.HexFormat;

/**
 * The assignors of Kafka's consumer. Members come as the bytes that they send to the leader:
 *
 *   topic NAME RACK+RACK,RACK,...          the racks of each partition's replicas, - for none
 *   member ID INSTANCE|- HEX
 *   assign range|roundrobin|sticky|cooperative-sticky     -> ID=TOPIC:PARTITION,... ID=...
 *   subscription NAME GENERATION RACK|- TOPIC,... TOPIC:PARTITION,...|-       -> HEX, as a member with this assignor sends it
 */
public class AssignMembers {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Map<String, List<PartitionInfo>> topics = new LinkedHashMap<>();
        Map<String, Subscription> members = new LinkedHashMap<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topic" -> topics.put(words[1], partitions(words[1], words[2]));
                case "member" -> {
                    byte[] bytes = HexFormat.of().parseHex(words[3]);
                    Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(bytes));
                    if (!words[2].equals("-")) subscription.setGroupInstanceId(Optional.of(words[2]));
                    members.put(words[1], subscription);
                }
                case "assign" -> {
                    Map<String, List<PartitionInfo>> wanted = new LinkedHashMap<>();
                    members.values().forEach(member -> member.topics().forEach(topic -> {
                        if (topics.containsKey(topic)) wanted.put(topic, topics.get(topic));
                    }));
                    System.out.println(text(assignor(words[1]).assignPartitions(wanted, members)));
                    topics.clear();
                    members.clear();
                }
                default -> System.out.println(subscription(words));
            }
        }
    }

    private static String subscription(String[] words) {
        List<TopicPartition> owned = new ArrayList<>();
        if (!words[5].equals("-"))
            for (String each : words[5].split(",")) {
                String[] parts = each.split(":");
                owned.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
            }
        int generation = Integer.parseInt(words[2]);
        AbstractPartitionAssignor assignor = assignor(words[1]);
        if (generation >= 0)
            assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        List<String> topics = List.of(words[4].split(","));
        boolean isCooperative = words[1].equals("cooperative-sticky");
        Optional<String> rack = words[3].equals("-") ? Optional.empty() : Optional.of(words[3]);
        ByteBuffer bytes = ConsumerProtocol.serializeSubscription(new Subscription(
            topics, assignor.subscriptionUserData(new java.util.HashSet<>(topics)), isCooperative ? owned : List.of(),
            generation, rack));
        byte[] data = new byte[bytes.remaining()];
        bytes.get(data);
        return HexFormat.of().formatHex(data);
    }

    private static AbstractPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static List<PartitionInfo> partitions(String topic, String described) {
        List<PartitionInfo> found = new ArrayList<>();
        for (String racks : described.split(",")) {
            String[] each = racks.equals("-") ? new String[0] : racks.split("\\+");
            Node[] nodes = new Node[each.length];
            for (int i = 0; i < nodes.length; i++) nodes[i] = new Node(i, "host", 9092, each[i]);
            found.add(new PartitionInfo(topic, found.size(), nodes.length > 0 ? nodes[0] : null, nodes, nodes));
        }
        return found;
    }

    private static String text(Map<String, List<TopicPartition>> result) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(result).forEach((member, partitions) -> {
            text.append(member).append('=');
            partitions.forEach(each -> text.append(each.topic()).append(':').append(each.partition()).append(','));
            text.append(' ');
        });
        return text.toString();
    }
}
