"""OpenLDAP's slapd: ldap-auth and ldap-auth-advanced, names with syntax, StartTLS, LDAPS, restarts and a directory that hangs."""

import base64
import json
import subprocess
import time

from identity import Load, basic, echo, issued_certificate, nodes
from scene import Scene, expect, free_port, program, wait_for

SUFFIX, USERS = "dc=example,dc=com", "ou=users,dc=example,dc=com"
SEARCHER, SEARCHER_PASSWORD = f"cn=gateway,{SUFFIX}", "search: it"
# User names that are syntax in names or filters, with passwords that are syntax in fields.
NAMES = {
    "alice": "wonder", "smith, john": "p:a:ss", "a+b": "pä ss", "(paren)*": "*", "#lead": "#", "back\\slash": "\\2a",
    'quote"d': '"', "semi;colon": ";", "eq=ual": "=", "<angle>": "<>", "üser 用户": "密码", "o'neil": "'", "100%": "%41", "tab\there": "\t",
}


def hex_value(value: str) -> str:
    """A value of a name in which every byte is escaped (RFC 4514 section 2.4)."""
    return "".join(f"\\{byte:02X}" for byte in value.encode())


class Directory:
    """A slapd with its own database, on a port for LDAP and one for LDAPS."""

    def __init__(self, scene: Scene, name: str):
        self.folder = scene.folder / name
        (self.folder / "data").mkdir(parents=True)
        cert, key, self.ca = issued_certificate(self.folder)
        self.port, self.tls_port = free_port(), free_port()
        schemas = "\n".join(f"include /etc/ldap/schema/{one}.schema" for one in ("core", "cosine", "inetorgperson"))
        config = self.folder / "slapd.conf"
        config.write_text(f"""{schemas}
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {self.folder}/pid
TLSCertificateFile {cert}
TLSCertificateKeyFile {key}
database mdb
suffix {SUFFIX}
directory {self.folder}/data
maxsize 10485760
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{SEARCHER}" read by * none
""")
        ldif = self.folder / "entries.ldif"
        ldif.write_text(self.entries())
        subprocess.run([program("slapadd"), "-q", "-f", config, "-l", ldif], check=True, capture_output=True)
        # A debug level, even 0, keeps the server in the foreground.
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        self.server = scene.server(name, [program("slapd"), "-f", config, "-h", urls, "-d", "0"], port=self.port)

    @staticmethod
    def entries() -> str:
        def line(name: str, value: str) -> str:
            return f"{name}:: {base64.b64encode(value.encode()).decode()}\n"

        out = f"dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n\n"
        out += f"dn: {USERS}\nobjectClass: organizationalUnit\nou: users\n\n"
        out += f"dn: {SEARCHER}\nobjectClass: person\nsn: gateway\n" + line("userPassword", SEARCHER_PASSWORD) + "\n"
        for number, (name, password) in enumerate(NAMES.items()):
            out += line("dn", f"cn={hex_value(name)},{USERS}") + "objectClass: inetOrgPerson\nsn: user\n"
            out += line("uid", name) + line("cn", name) + line("userPassword", password)
            # Two entries share this one.
            out += f"mail: {'shared' if number < 2 else number}@example.com\n\n"
        return out


def resources(directory: Directory, upstream: int) -> dict:
    """One route for each way to the directory; the consumers write their names with every byte escaped."""
    address, tls_address = f"127.0.0.1:{directory.port}", f"127.0.0.1:{directory.tls_port}"
    plain = {"ldap_uri": address, "base_dn": USERS, "uid": "cn", "hide_credentials": True}
    search = {"ldap_uri": address, "base_dn": SUFFIX, "attribute": "uid", "bind_dn": SEARCHER, "ldap_password": SEARCHER_PASSWORD,
              "header_type": "basic"}
    ways = {
        "bind": {"ldap-auth": plain},
        "bind-tls": {"ldap-auth": {**plain, "ldap_uri": tls_address, "use_tls": True, "tls_verify": True}},
        "search": {"ldap-auth-advanced": search},
        "starttls": {"ldap-auth-advanced": {**search, "use_starttls": True}},
        "ldaps": {"ldap-auth-advanced": {**search, "ldap_uri": tls_address, "use_ldaps": True}},
        "mail": {"ldap-auth-advanced": {**search, "attribute": "mail"}},
        "user": {"ldap-auth-advanced": {**search, "consumer_required": False, "timeout": 1000}},
        "anonymous": {"ldap-auth-advanced": {name: value for name, value in search.items() if name not in ("bind_dn", "ldap_password")}},
        "stranger": {"ldap-auth-advanced": {**search, "ldap_password": "wrong"}},
        "open": {},
    }
    def user_dn(name: str) -> str:
        return f"cn={hex_value(name)},{USERS}"

    consumers = [{"username": f"user{number}", "plugins": {plugin: {"user_dn": user_dn(name)} for plugin in
                  ("ldap-auth", "ldap-auth-advanced")}} for number, name in enumerate(NAMES)]
    routes = [{"id": name, "uri": f"/{name}", "plugins": plugins, "upstream": nodes(upstream)} for name, plugins in ways.items()]
    return {"consumers": consumers, "routes": routes}


def check_logins(gateway, route: str):
    """Every user logs in as the own consumer, and with no other password."""
    for number, (name, password) in enumerate(NAMES.items()):
        status, _, body = gateway.get(f"/{route}", basic(name, password))
        expect(status == 200, f"{route}: {name!r} got {status} {body!r}")
        consumer = json.loads(body)["fields"].get("x-consumer-username")
        expect(consumer == f"user{number}", f"{route}: {name!r} became {consumer}")
        for wrong in (password + "x", "", "*"):
            status, _, body = gateway.get(f"/{route}", basic(name, wrong))
            expect(status == 401 or wrong == password, f"{route}: {name!r} with {wrong!r} got {status}")


# Names that would be filters or parts of names, if they were not escaped.
FORGED = ["*", "al*", "alice)(uid=*", "alice))(|(uid=*", "alice,ou=users", "alice+sn=user", "cn=alice", "alice\\00", "\x00", "nobody"]


def run(scene: Scene):
    program("slapd")
    directory, upstream = Directory(scene, "slapd-1"), echo()
    other = Directory(scene, "slapd-2")
    both = resources(directory, upstream.port)
    elsewhere = {"ldap_uri": f"127.0.0.1:{other.port}", "base_dn": USERS}
    both["routes"].append({"id": "other", "uri": "/other", "plugins": {"ldap-auth": elsewhere}, "upstream": nodes(upstream.port)})
    gateway = scene.gateway(both, env={"SSL_CERT_FILE": str(directory.ca)})
    alice = basic("alice", "wonder")

    for route in ("bind", "bind-tls", "search", "starttls", "ldaps"):
        with scene.case(f"users with syntax in their names log in, each as the own consumer: {route}"):
            check_logins(gateway, route)
    with scene.case("forged names and empty passwords are refused"):
        for route in ("bind", "search", "user"):
            for name in FORGED:
                for password in ("wonder", "", "*"):
                    status, fields, _ = gateway.get(f"/{route}", basic(name, password))
                    expect(status == 401 and "www-authenticate" in fields, f"{route}: {name!r} got {status}")
    with scene.case("an attribute that two entries share identifies nobody, and a unique one does"):
        expect(gateway.get("/mail", basic("shared@example.com", "wonder"))[0] == 401, "a shared name was accepted")
        expect(gateway.get("/mail", basic("3@example.com", "*"))[0] == 200, "a unique name was refused")
    with scene.case("a search that the directory does not allow finds nobody"):
        expect(gateway.get("/anonymous", alice)[0] in (401, 500), "an anonymous search was accepted")
        expect(gateway.get("/stranger", alice)[0] == 500, "a wrong password of the searching account is no answer of 500")
    with scene.case("a user without a consumer passes by name, and forged fields are removed"):
        forged = {**alice, "X-Consumer-Username": "root", "X-Authenticated-Groups": "admin"}
        seen = json.loads(gateway.get("/user", forged)[2])["fields"]
        expect(seen.get("x-consumer-username") == "user0", f"the upstream saw {seen}")
        expect("x-authenticated-groups" not in seen, f"the upstream saw {seen}")
    with scene.case("a certificate of an unknown authority is refused"):
        suspicious = scene.gateway(both)
        for route, status in (("bind-tls", 401), ("starttls", 500), ("ldaps", 500)):
            found = suspicious.get(f"/{route}", alice)[0]
            expect(found == status, f"{route}: {found}")
        suspicious.server.stop()
    with scene.case("kept connections end with the directory, and the first request after its restart is answered"):
        for _ in range(8):
            expect(gateway.get("/search", alice)[0] == 200, "refused before the restart")
        directory.server.stop()
        expect(gateway.get("/search", alice)[0] == 500, "answered without a directory")
        expect(gateway.get("/bind", alice)[0] == 401, "answered without a directory")
        directory.server.start()
        for route in ("search", "bind", "starttls", "ldaps", "bind-tls"):
            expect(gateway.get(f"/{route}", alice)[0] == 200, f"{route}: refused after the restart")
    hang(scene, gateway, directory, alice)


def hang(scene: Scene, gateway, directory: Directory, alice: dict):
    with scene.case("a directory that hangs under load fails closed, and concerns no other request"):
        # The queries in flight exceed what the gateway allows.
        with Load(gateway, "/open", rate=50) as open_load, Load(gateway, "/other", alice, rate=20) as other_load:
            with Load(gateway, "/user", alice, rate=30, threads=40) as load, Load(gateway, "/bind", alice, rate=70, threads=400) as binds:
                time.sleep(1)
                directory.server.freeze()
                # The whole time is longer than the time limit of a query.
                time.sleep(5 if scene.short else 12)
                frozen = dict(load.statuses), dict(binds.statuses)
                directory.server.thaw()
                begin = time.monotonic()
                wait_for(lambda: gateway.get("/user", alice)[0] == 200, 15, "the recovery")
                scene.note(f"recovered after {time.monotonic() - begin:.1f} s; answers until then {frozen}")
                time.sleep(2)
        scene.note(f"p99 beside it: {open_load.percentile_ms(0.99):.0f} ms without login, {other_load.percentile_ms(0.99):.0f} ms at another directory")
        open_load.expect_only(200)
        other_load.expect_only(200)
        load.expect_only(200, 500)
        binds.expect_only(200, 401)
        expect(load.statuses[500] > 0 and binds.statuses[401] > 0, f"nothing was refused: {load.statuses} {binds.statuses}")
        expect(open_load.percentile_ms(0.99) < 2000, f"requests without login waited: {open_load.percentile_ms(0.99):.0f} ms")
