"""Apache Kafka: kafka-logger without login, with PLAIN and SCRAM, over TLS; brokers restarted, late topics, moved leaders."""

import json
import subprocess
import sys
import time
from pathlib import Path

from scene import PROGRAMS, Missing, Scene, Server, expect, free_port, program, wait_for
from sinks import Sink, by_id, prove, resources, settled

sys.path.insert(0, str(PROGRAMS / "confluent-kafka"))
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SECRET = "s3cret w0rd"
JAVA = ["-Xmx320m", "-Xms160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def configuration(folder: Path, node: int, ports: dict, controller: int, pem: Path) -> Path:
    """A broker; node 1 is the controller too."""
    login = "org.apache.kafka.common.security"
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    plain = f'{login}.plain.PlainLoginModule required user_logs="{SECRET}";'
    lines = {
        "process.roles": "broker,controller" if node == 1 else "broker",
        "node.id": node,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners + ([f"CONTROLLER://127.0.0.1:{controller}"] if node == 1 else [])),
        "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": pem,
        "log.dirs": folder / f"data-{node}",
        "num.partitions": 3,
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
        "message.max.bytes": 1048588,
        # A broker that stands still for 20 s must not be fenced for longer than it takes to see it again.
        "broker.session.timeout.ms": 6000,
        "controlled.shutdown.enable": "true",
    }
    for listener in ("login", "secure"):
        lines[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            lines[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = f"{login}.scram.ScramLoginModule required;"
    path = folder / f"node-{node}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


class Cluster:
    """One or two brokers."""

    def __init__(self, scene: Scene):
        self.scene, self.java = scene, program("java")
        self.jars = PROGRAMS / "kafka"
        if not self.jars.is_dir():
            raise Missing("the jars of Kafka are not installed: run scripts/deps.sh counterparts")
        if not (PROGRAMS / "confluent-kafka").is_dir():
            raise Missing("confluent-kafka is not installed: run scripts/deps.sh counterparts")
        cert, key = scene.certificate()
        self.pem = scene.folder / "broker.pem"
        self.pem.write_text(key.read_text() + cert.read_text())
        self.controller = free_port()
        self.ports = {node: {name: free_port() for name in ("OPEN", "LOGIN", "SECURE")} for node in (1, 2)}
        self.servers: dict[int, Server] = {}

    def class_path(self) -> list:
        return [self.java, *JAVA, "-cp", f"{self.jars}/*"]

    def start(self, node: int):
        config = configuration(self.scene.folder, node, self.ports[node], self.controller, self.pem)
        users = [option for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                 for option in ("--add-scram", f'{mechanism}=[name=logs,password="{SECRET}"]')] if node == 1 else []
        made = subprocess.run([*self.class_path(), "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", config, *users],
                              capture_output=True, text=True, timeout=60)
        expect(made.returncode == 0, f"format of the storage: {made.stdout[-300:]}{made.stderr[-300:]}")
        self.servers[node] = self.scene.server(f"kafka-{node}", [*self.class_path(), "kafka.Kafka", config],
                                               port=self.ports[node]["OPEN"], seconds=90)

    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[node]['OPEN']}" for node, server in self.servers.items() if not server.died())

    def create(self, topic: str, replicas: list[int]):
        """Creates a topic of three partitions; the first replica leads each."""
        from confluent_kafka.admin import AdminClient, NewTopic
        admin = AdminClient({"bootstrap.servers": self.bootstrap()})
        for made in admin.create_topics([NewTopic(topic, 3, replica_assignment=[replicas] * 3)], request_timeout=15).values():
            made.result(20)

    def values(self, topic: str) -> list[bytes]:
        """All records of a topic."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
        consumer = Consumer({"bootstrap.servers": self.bootstrap(), "group.id": "proof", "enable.auto.commit": False,
                             "fetch.wait.max.ms": 50, "log_level": 0})
        try:
            known = consumer.list_topics(topic, timeout=8).topics[topic].partitions
            parts = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in known]
            left = sum(consumer.get_watermark_offsets(part, timeout=8)[1] for part in parts)
            consumer.assign(parts)
            found, limit = [], time.monotonic() + 10
            while len(found) < left and time.monotonic() < limit:
                found += [record.value() for record in consumer.consume(500, timeout=0.2) if record.error() is None]
            return found
        except KafkaException:
            return []
        finally:
            consumer.close()

    def entries(self, topic: str) -> list[dict]:
        found = []
        for value in self.values(topic):
            batch = json.loads(value)
            found += batch if isinstance(batch, list) else [batch]
        return found


def kafka_sinks(cluster: Cluster) -> list[Sink]:
    def sink(route: str, listener: str, mechanism: str = "", **more) -> Sink:
        broker = {"host": "127.0.0.1", "port": cluster.ports[1][listener]}
        if mechanism:
            broker["sasl_config"] = {"mechanism": mechanism, "user": "logs", "password": SECRET}
        return Sink(route, "kafka-logger", {"brokers": [broker], "kafka_topic": route, "timeout": 1, "max_retry_count": 1, **more},
                    lambda: cluster.entries(route))
    return [
        sink("open", "OPEN"),
        sink("plain", "LOGIN", "PLAIN"),
        sink("scram-256", "LOGIN", "SCRAM-SHA-256", required_acks=-1),
        sink("scram-512", "SECURE", "SCRAM-SHA-512", tls={}),
    ]


def check_late_topic(scene: Scene, cluster: Cluster, upstream: int):
    """With the defaults, which repeat no batch."""
    settings = {"brokers": [{"host": "127.0.0.1", "port": cluster.ports[1]["OPEN"]}], "kafka_topic": "late"}
    late = Sink("late", "kafka-logger", settings, lambda: cluster.entries("late"))
    gateway = scene.gateway(resources([late], upstream))
    with scene.case("a topic that the broker creates for the first batch loses none"):
        for number in range(50):
            gateway.get(f"/late/{number}?id=late-{number}", {"X-Id": f"late-{number}"})
        wait_for(lambda: settled(gateway, late)["sent"] >= 50, 15,
                 lambda: f"50 entries are sent; {settled(gateway, late)}")
        expect(len(by_id(late.read(), "late-")) == 50, "entries are missing")


def check_moved_leader(scene: Scene, cluster: Cluster, upstream: int):
    cluster.start(2)
    cluster.create("moved", [2, 1])
    brokers = [{"host": "127.0.0.1", "port": cluster.ports[node]["OPEN"]} for node in (2, 1)]
    moved = Sink("moved", "kafka-logger", {"brokers": brokers, "kafka_topic": "moved", "required_acks": -1}, lambda: cluster.entries("moved"))
    gateway = scene.gateway(resources([moved], upstream))
    with scene.case("a leader that ends in order loses no entry, without repetitions of batches"):
        for number in range(200):
            if number == 100:
                cluster.servers[2].stop()
            gateway.get(f"/moved/{number}", {"X-Id": f"moved-{number}"})
            time.sleep(0.02)
        wait_for(lambda: sum(settled(gateway, moved).values()) >= 200, 20, lambda: f"200 entries end; {settled(gateway, moved)}")
        ended = settled(gateway, moved)
        expect(ended["sent"] == 200, f"{ended}")
        expect(len(by_id(moved.read(), "moved-")) == 200, "entries are missing")


def check_refusals(scene: Scene, cluster: Cluster, upstream: int):
    wrong = {"host": "127.0.0.1", "port": cluster.ports[1]["LOGIN"]}
    sinks = [Sink("large", "kafka-logger", {"brokers": [{"host": "127.0.0.1", "port": cluster.ports[1]["OPEN"]}], "kafka_topic": "large",
                                            "batch_max_size": 250, "inactive_timeout": 30, "max_retry_count": 3}, list)]
    sinks += [Sink(mechanism.lower(), "kafka-logger", {
        "brokers": [{**wrong, "sasl_config": {"mechanism": mechanism, "user": "logs", "password": "wr0ng-secret"}}],
        "kafka_topic": "refused"}, list) for mechanism in ("PLAIN", "SCRAM-SHA-256")]
    gateway = scene.gateway(resources(sinks, upstream))
    with scene.case("a record that is too large is dropped with the broker's reason; a wrong password is refused by its name"):
        for number in range(250):
            gateway.get(f"/large/{number}", {"X-Id": "large", "User-Agent": "x" * 6000})
        for sink in sinks[1:]:
            gateway.get(f"/{sink.route}/1", {"X-Id": "refused"})
        wait_for(lambda: settled(gateway, sinks[0])["dropped_failed"] >= 252, 20,
                 lambda: f"252 drops; {settled(gateway, sinks[0])}")
        log = gateway.log()
        expect("too large" in log, "no reason of the large record")
        expect(log.count("login refused") >= 2, "no reason of the refused logins")
        expect("wr0ng-secret" not in log, "the password is in the log")


def run(scene: Scene):
    cluster = Cluster(scene)
    cluster.start(1)
    sinks = kafka_sinks(cluster)
    for sink in sinks:
        cluster.create(sink.route, [1])
    upstream = scene.upstream().port
    check_late_topic(scene, cluster, upstream)
    gateway = scene.gateway(resources(sinks, upstream))
    prove(scene, gateway, sinks, cluster.servers[1])
    check_refusals(scene, cluster, upstream)
    check_moved_leader(scene, cluster, upstream)
