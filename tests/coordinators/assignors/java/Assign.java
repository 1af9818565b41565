import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignors. Each group on stdin is three kinds of lines, and is answered with one line:
 *
 *   topic NUMBER PARTITIONS
 *   member ID INSTANCE|- TOPIC,TOPIC,... TOPIC:PARTITION,TOPIC:PARTITION,...      (- for none)
 *   assign uniform|range|simple          -> ID=TOPIC:PARTITION,... ID=...
 */
public class Assign {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Map<Uuid, Integer> topics = new HashMap<>();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topic" -> topics.put(id(words[1]), Integer.parseInt(words[2]));
                case "member" -> {
                    Set<Uuid> subscribed = new HashSet<>();
                    for (String topic : list(words[3])) subscribed.add(id(topic));
                    subscriptions.add(subscribed);
                    Map<Uuid, Set<Integer>> assigned = new HashMap<>();
                    for (String each : list(words[4])) {
                        String[] parts = each.split(":");
                        int partition = Integer.parseInt(parts[1]);
                        assigned.computeIfAbsent(id(parts[0]), key -> new HashSet<>()).add(partition);
                        owners.computeIfAbsent(id(parts[0]), key -> new HashMap<>()).put(partition, words[1]);
                    }
                    Optional<String> instance = words[2].equals("-") ? Optional.empty() : Optional.of(words[2]);
                    members.put(words[1], new MemberSubscriptionAndAssignmentImpl(
                        Optional.empty(), instance, subscribed, new Assignment(Collections.unmodifiableMap(assigned))));
                }
                default -> {
                    SubscriptionType type =
                        subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
                    GroupAssignment result = assignor(words[1]).assign(
                        new GroupSpecImpl(Collections.unmodifiableMap(members), type, owners, Optional.empty()),
                        describer(topics));
                    System.out.println(text(result));
                    topics = new HashMap<>();
                    members = new LinkedHashMap<>();
                    owners = new HashMap<>();
                    subscriptions = new HashSet<>();
                }
            }
        }
    }

    private static PartitionAssignor assignor(String name) {
        return switch (name) {
            case "uniform" -> new UniformAssignor();
            case "range" -> new RangeAssignor();
            default -> new SimpleAssignor();
        };
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> topics) {
        return new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return topics.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    private static Uuid id(String number) {
        return new Uuid(7, Long.parseLong(number));
    }

    private static String[] list(String word) {
        return word.equals("-") ? new String[0] : word.split(",");
    }

    private static String text(GroupAssignment result) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(result.members()).forEach((member, assignment) -> {
            text.append(member).append('=');
            assignment.partitions().forEach((topic, partitions) -> new TreeSet<>(partitions).forEach(partition ->
                text.append(topic.getLeastSignificantBits()).append(':').append(partition).append(',')));
            text.append(' ');
        });
        return text.toString();
    }
}
