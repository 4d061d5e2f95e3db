import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** One node of OpenSearch from its libraries. Usage: SearchNode.java HTTP-PORT TRANSPORT-PORT FOLDER */
public class SearchNode {
    static class OneNode extends Node {
        OneNode(Environment environment) {
            super(environment, List.of(Netty4Plugin.class), true);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("cluster.name", "counterparts")
            .put("node.name", "one")
            .put("path.home", Path.of(arguments[2]).toString())
            .put("discovery.type", "single-node")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("network.host", "127.0.0.1")
            .put("http.port", arguments[0])
            .put("transport.port", arguments[1])
            .build();
        Environment environment = InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "one");
        OneNode node = new OneNode(environment);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        node.start();
        new CountDownLatch(1).await();
    }
}
