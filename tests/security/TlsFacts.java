import java.io.FileInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.security.PasswordEncoder;

/** What Java and Kafka's classes make of certificates, mapping rules and passwords; a line of base64 for each argument. */
public class TlsFacts {
    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            System.out.println(Base64.getEncoder().encodeToString(answer(arg).getBytes("UTF-8")));
        }
    }

    private static String answer(String arg) throws Exception {
        String[] parts = arg.split("\u0001", -1);
        switch (parts[0]) {
            case "subject":
                try (FileInputStream in = new FileInputStream(parts[1])) {
                    X509Certificate found = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
                    return found.getSubjectX500Principal().getName();
                }
            case "map":
                try {
                    return SslPrincipalMapper.fromRules(parts[1]).getName(parts[2]);
                } catch (Exception e) {
                    return "!" + e.getClass().getSimpleName();
                }
            case "encode":
                return encoder(parts[1]).encode(new Password(parts[2]));
            case "decode":
                return encoder(parts[1]).decode(parts[2]).value();
            default:
                throw new IllegalArgumentException(parts[0]);
        }
    }

    private static PasswordEncoder encoder(String secret) {
        return PasswordEncoder.encrypting(new Password(secret), null, "AES/CBC/PKCS5Padding", 128, 4096);
    }
}
