import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Kafka's own task assignor. A line in, a line out:
 *
 *   standby replicas ; subtopology/tasks/is stateful ... ; member/process/active/standby ...
 *   member/active/standby ...         tasks are subtopology-partition, with commas between them
 */
public class AssignTasks {
    record Topology(TreeMap<String, Integer> counts, Set<String> stateful) implements TopologyDescriber {
        public List<String> subtopologies() {
            return List.copyOf(counts.keySet());
        }

        public int maxNumInputPartitions(String subtopologyId) {
            return counts.get(subtopologyId);
        }

        public boolean isStateful(String subtopologyId) {
            return stateful.contains(subtopologyId);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(assign(line.split(";", -1)));
        }
    }

    static String assign(String[] parts) {
        var topology = new Topology(new TreeMap<>(), new HashSet<>());
        for (String each : parts[1].split(" ")) {
            String[] fields = each.split("/", -1);
            topology.counts.put(fields[0], Integer.parseInt(fields[1]));
            if (fields[2].equals("1")) topology.stateful.add(fields[0]);
        }
        var members = new LinkedHashMap<String, AssignmentMemberSpec>();
        for (String each : parts[2].split(" ")) {
            String[] fields = each.split("/", -1);
            members.put(fields[0], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(fields[2]),
                tasks(fields[3]), Map.of(), fields[1], Map.of(), Map.of(), Map.of()));
        }
        var found = new StickyTaskAssignor().assign(
            new GroupSpecImpl(members, Map.of("num.standby.replicas", parts[0])), topology);
        var answer = new StringBuilder();
        new TreeMap<>(found.members()).forEach((member, tasks) -> answer.append(answer.isEmpty() ? "" : " ")
            .append(member).append('/').append(text(tasks.activeTasks()))
            .append('/').append(text(tasks.standbyTasks())));
        return answer.toString();
    }

    static Map<String, Set<Integer>> tasks(String text) {
        var found = new TreeMap<String, Set<Integer>>();
        for (String each : text.split(",")) {
            if (each.isEmpty()) continue;
            String[] fields = each.split("-");
            found.computeIfAbsent(fields[0], name -> new TreeSet<>()).add(Integer.parseInt(fields[1]));
        }
        return found;
    }

    static String text(Map<String, Set<Integer>> tasks) {
        var found = new java.util.ArrayList<String>();
        new TreeMap<>(tasks).forEach((subtopology, partitions) -> new TreeSet<>(partitions)
            .forEach(partition -> found.add(subtopology + "-" + partition)));
        return String.join(",", found);
    }
}
