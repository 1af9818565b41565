import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** For each line on stdin, an expression and names after tabs: what is wrong, or a 0 or 1 for each name. */
public class Regex {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            try {
                Pattern pattern = Pattern.compile(words[0]);
                StringBuilder answer = new StringBuilder();
                for (int i = 1; i < words.length; i++) answer.append(pattern.matcher(words[i]).matches() ? '1' : '0');
                System.out.println(answer);
            } catch (PatternSyntaxException wrong) {
                System.out.println("! " + wrong.getDescription());
            }
        }
    }
}
