"""moto, which answers like AWS Secrets Manager and checks signatures: names with slashes, members, binary values, rotation, absence."""

import base64
import json
import subprocess

from identity import nodes
from managers import Node, check_away
from scene import PROGRAMS, Missing, Scene, expect, free_port

CANARY, REGION = "canary-19d0b4", "eu-west-1"
MODULES = PROGRAMS / "moto"
# Reads calls from the standard input: [service, method, arguments], one a line.
CALLER = """
import base64, boto3, json, sys
url, region, key, secret = sys.argv[1:]
for line in sys.stdin:
    service, method, arguments = json.loads(line)
    if "SecretBinary" in arguments: arguments["SecretBinary"] = base64.b64decode(arguments["SecretBinary"])
    client = boto3.client(service, endpoint_url=url, region_name=region, aws_access_key_id=key, aws_secret_access_key=secret)
    print(json.dumps(getattr(client, method)(**arguments), default=str), flush=True)
"""
# Calls before signatures are checked: those that make the first user.
SETUP_CALLS = 3


class Moto:
    """A server that checks signatures and permissions, with a user that may do everything."""

    def __init__(self, scene: Scene):
        if not (MODULES / "bin/moto_server").exists():
            raise Missing("moto is not installed: run scripts/deps.sh counterparts")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = scene.server("moto", [MODULES / "bin/moto_server", "-H", "127.0.0.1", "-p", self.port], port=self.port,
                                   env={"INITIAL_NO_AUTH_ACTION_COUNT": str(SETUP_CALLS)})
        self.keys = ("setup", "setup")
        self.keys = self.user("root", "*")

    def calls(self, *calls) -> list:
        lines = "".join(json.dumps(call) + "\n" for call in calls)
        done = subprocess.run([MODULES / "bin/python", "-c", CALLER, self.url, REGION, *self.keys], input=lines, capture_output=True, text=True, timeout=60)
        expect(done.returncode == 0, f"the set-up of moto: {done.stderr[-400:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def user(self, name: str, action: str) -> tuple[str, str]:
        """The credentials of a new user that may do this."""
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}
        made = self.calls(["iam", "create_user", {"UserName": name}], ["iam", "create_access_key", {"UserName": name}],
                          ["iam", "put_user_policy", {"UserName": name, "PolicyName": "all", "PolicyDocument": json.dumps(policy)}])
        key = made[1]["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    def secrets(self, *calls):
        return self.calls(*(["secretsmanager", method, arguments] for method, arguments in calls))


# Names of consumers, and the references of their keys.
REFERENCES = {"text": "plain", "member": "prod/db/password", "slash": "prod/with/slashes", "binary": "binary", "signs": "prod/a+b=c.d@e/key",
              "number": "prod/db/number"}


def resources(moto: Moto, keys: tuple, upstream: int) -> dict:
    manager = {"id": "aws/1", "access_key_id": keys[0], "secret_access_key": keys[1], "region": REGION, "endpoint_url": moto.url}
    consumers = [{"username": name, "plugins": {"key-auth": {"key": f"$secret://aws/1/{path}"}}} for name, path in REFERENCES.items()]
    routes = [{"id": "keys", "uri": "/keys", "plugins": {"key-auth": {}}, "upstream": nodes(upstream)}]
    return {"secrets": [manager], "consumers": consumers, "routes": routes}


def run(scene: Scene):
    moto, upstream = Moto(scene), scene.upstream()
    keys = moto.user("gateway", "secretsmanager:GetSecretValue")
    moto.secrets(
        ["create_secret", {"Name": "plain", "SecretString": f"{CANARY}-text"}],
        ["create_secret", {"Name": "prod/db", "SecretString": json.dumps({"password": f"{CANARY}-member", "number": 1900450419})}],
        ["create_secret", {"Name": "prod/with/slashes", "SecretString": f"{CANARY}-slash"}],
        ["create_secret", {"Name": "binary", "SecretBinary": base64.b64encode(f"{CANARY}-binary".encode()).decode()}],
        ["create_secret", {"Name": "prod/a+b=c.d@e", "SecretString": json.dumps({"key": f"{CANARY}-signs"})}],
    )
    node = Node(scene, resources(moto, keys, upstream.port))
    with scene.case("texts, members, names with slashes and signs, numbers and binary values are in force at the start"):
        for name in REFERENCES:
            key = "1900450419" if name == "number" else f"{CANARY}-{name}"
            expect(node.status(key) == 200, f"{name}: {node.status(key)} {node.problems()}")
    with scene.case("a wrong signature is refused by the server, reported, and opens nothing"):
        wrong = Node(scene, resources(moto, (keys[0], keys[1][:-1] + "x"), upstream.port))
        expect(wrong.status(f"{CANARY}-text") == 401, "a key is open")
        # moto does not name the reason in JSON, as AWS does.
        wrong.wait_problem("answered 403")
        expect(keys[1] not in wrong.problems() + wrong.gateway.log(), "the credential is shown")
        wrong.gateway.server.stop()
    with scene.case("a user without the permission is reported"):
        other = Node(scene, resources(moto, moto.user("other", "s3:GetObject"), upstream.port))
        other.wait_problem("answered 403")
        other.gateway.server.stop()
    with scene.case("a rotated value replaces the former one, and appears in no output"):
        moto.secrets(["put_secret_value", {"SecretId": "plain", "SecretString": f"{CANARY}-text-2"}])
        node.refresh()
        node.wait_open(f"{CANARY}-text-2")
        expect(node.status(f"{CANARY}-text") == 401, "the former key is still valid")
        node.expect_hidden(CANARY, keys[1])
    with scene.case("a secret whose deletion is scheduled is reported, and its last value stays"):
        moto.secrets(["delete_secret", {"SecretId": "prod/with/slashes", "RecoveryWindowInDays": 7}])
        node.refresh()
        node.wait_problem("prod/with/slashes")
        expect(node.status(f"{CANARY}-slash") == 200, "the last value is lost")
        moto.secrets(["restore_secret", {"SecretId": "prod/with/slashes"}])
        node.refresh()
        node.wait_no_problem("prod/with/slashes")
    check_away(node, moto.server, f"{CANARY}-text-2")
