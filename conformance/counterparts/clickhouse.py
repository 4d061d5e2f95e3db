"""ClickHouse: clickhouse-logger."""

import json
import urllib.parse
from pathlib import Path

from scene import Scene, expect, fetch, free_port, program, wait_for
from sinks import FORMAT, Sink, prove, resources, settled

# Debian has version 18.16, which does not know the field X-ClickHouse-Database yet: tables have the name of their database.
MEMBERS = (*FORMAT, "route_id")


def configuration(folder: Path, http: int, tcp: int) -> Path:
    users = folder / "users.xml"
    profile = "<profile>default</profile><quota>default</quota><networks><ip>127.0.0.1</ip></networks>"
    users.write_text(f"""<yandex>
  <profiles><default/></profiles>
  <users>
    <default><password></password>{profile}</default>
    <logs><password>s3cret</password>{profile}</logs>
  </users>
  <quotas><default/></quotas>
</yandex>""")
    config = folder / "config.xml"
    config.write_text(f"""<yandex>
  <logger><level>warning</level><log>{folder}/server.log</log><errorlog>{folder}/error.log</errorlog></logger>
  <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path><user_files_path>{folder}/files/</user_files_path>
  <mark_cache_size>67108864</mark_cache_size><max_concurrent_queries>50</max_concurrent_queries>
  <users_config>{users}</users_config><default_profile>default</default_profile><default_database>default</default_database>
</yandex>""")
    return config


def run(scene: Scene):
    http, tcp = free_port(), free_port()
    daemon = program("clickhouse-server")
    config = configuration(scene.folder, http, tcp)
    server = scene.server("clickhouse", [daemon, f"--config-file={config}"], port=http)
    base = f"http://127.0.0.1:{http}"

    def ask(statement: str) -> str:
        return fetch(f"{base}/?" + urllib.parse.urlencode({"query": statement}), body=b"").decode()

    def rows(table: str) -> list[dict]:
        return [json.loads(line) for line in ask(f"SELECT * FROM gateway.{table} FORMAT JSONEachRow").split("\n") if line]

    ask("CREATE DATABASE gateway")
    tables = ("one", "two")
    for table in tables:
        columns = ", ".join(f"{name} String" for name in MEMBERS)
        ask(f"CREATE TABLE gateway.{table} ({columns}) ENGINE = MergeTree ORDER BY id")
    sinks = [Sink(table, "clickhouse-logger",
                  {"endpoint_addrs": [base], "user": "logs", "password": "s3cret", "database": "gateway", "logtable": f"gateway.{table}", "timeout": 1,
                   "max_retry_count": 1, **more}, lambda table=table: rows(table))
             for table, more in zip(tables, ({}, {"batch_max_size": 100}))]
    upstream = scene.upstream().port
    gateway = scene.gateway(resources(sinks, upstream))
    prove(scene, gateway, sinks, server)
    with scene.case("a batch of 1.5 MB is one insert"):
        before = settled(gateway, sinks[1])
        for number in range(100):
            gateway.get(f"/two/{number}", {"X-Id": f"large-{number}", "User-Agent": "x" * 15000})
        wait_for(lambda: settled(gateway, sinks[1])["sent"] - before["sent"] >= 100, 10, "the entries are sent")
        found = [row for row in rows("two") if row["id"].startswith("large-")]
        expect(len(found) == 100 and all(len(row["agent"]) == 15000 for row in found), f"{len(found)} rows")
    with scene.case("a wrong password is an error with the server's text, and its entries are counted as dropped"):
        sinks[0].settings["password"] = "wrong"
        gateway.write(resources(sinks, upstream))
        before = settled(gateway, sinks[0])

        def refused():
            gateway.get("/one/refused", {"X-Id": "refused"})
            return settled(gateway, sinks[0])["dropped_failed"] > before["dropped_failed"]
        wait_for(refused, 20, "entries are dropped")
        expect("assword" in gateway.log() or "status code[" in gateway.log(), "the log has no reason")
        expect("wrong" not in gateway.log(), "the password is in the log")
