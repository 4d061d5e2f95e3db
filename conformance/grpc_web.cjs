// gRPC-Web: the official client calls the interop server through the gateway.
// Prints one line per case: its name, a tab, and the reason for a failure; empty after the tab if it passed.
// Usage: node grpc_web.cjs PACKAGES URL
"use strict";

const path = require("path");
const [packages, url] = process.argv.slice(2);
const load = createRequire(path.join(packages, "node_modules"));
global.XMLHttpRequest = load("xhr2");
const { GrpcWebClientBase, MethodDescriptor, MethodType, StatusCode } = load("grpc-web");

function createRequire(folder) {
  const { createRequire } = require("module");
  return createRequire(path.join(folder, "x.js"));
}

// Protobuf encoding of the interop messages in use: fields in the order of their numbers.
const varint = (number) => {
  const out = [];
  for (; number > 127; number >>>= 7) out.push((number & 127) | 128);
  return Buffer.from([...out, number]);
};
const integer = (field, number) => Buffer.concat([varint(field << 3), varint(number)]);
const bytes = (field, data) => {
  const body = Buffer.from(data);
  return Buffer.concat([varint((field << 3) | 2), varint(body.length), body]);
};
const payload = (size) => bytes(2, Buffer.alloc(size));
const echoStatus = (code, message) => bytes(7, Buffer.concat([integer(1, code), bytes(2, message)]));

// Payload length of a response, in bytes: field 1 is the payload, field 2 of the payload is its body.
function payloadLength(message) {
  const inner = field(message, 1);
  return inner ? (field(inner, 2) || []).length : 0;
}

function field(message, wanted) {
  let at = 0;
  const read = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = message[at++];
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const key = read();
    if ((key & 7) === 0) {
      read();
      continue;
    }
    const length = read();
    if (key >> 3 === wanted) return message.subarray(at, at + length);
    at += length;
  }
  return null;
}

const method = (name, type = MethodType.UNARY) =>
  new MethodDescriptor(name, type, Object, Object, (message) => new Uint8Array(message), (data) => new Uint8Array(data));

const SERVICE = "/grpc.testing.TestService/";

// One call: the payload lengths of its messages, its final status, and its metadata.
function call(format, name, message, { metadata = {}, streams = false } = {}) {
  const client = new GrpcWebClientBase({ format });
  const type = streams ? MethodType.SERVER_STREAMING : MethodType.UNARY;
  return new Promise((resolve) => {
    const said = { sizes: [], code: null, details: "", metadata: {}, trailers: {} };
    const finish = (code, details) => resolve({ ...said, code, details: details || "" });
    if (!streams) {
      const stream = client.rpcCall(url + name, message, metadata, method(name, type), (error, answer) => {
        if (error) return finish(error.code, error.message);
        said.sizes.push(payloadLength(answer));
      });
      stream.on("metadata", (found) => (said.metadata = found));
      stream.on("status", (status) => {
        said.trailers = status.metadata || {};
        // The client emits the metadata of the response head after the status.
        setImmediate(finish, status.code, status.details);
      });
      return;
    }
    const stream = client.serverStreaming(url + name, message, metadata, method(name, type));
    stream.on("metadata", (found) => (said.metadata = found));
    stream.on("data", (answer) => {
      said.sizes.push(payloadLength(answer));
    });
    stream.on("error", (error) => finish(error.code, error.message));
    stream.on("status", (status) => (said.code = status.code));
    stream.on("end", () => finish(said.code ?? StatusCode.OK));
  });
}

function same(found, expected) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`got ${a}, expected ${b}`);
}

const SIZES = [31415, 9, 2653, 58979];
const streamed = () => Buffer.concat(SIZES.map((size) => bytes(2, integer(1, size))));
const SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP \uD83D\uDE08\t\n";

const CASES = {
  async empty_unary(format) {
    const said = await call(format, SERVICE + "EmptyCall", Buffer.alloc(0));
    same([said.code, said.sizes], [StatusCode.OK, [0]]);
  },
  async large_unary(format) {
    const asked = Buffer.concat([integer(2, 314159), bytes(3, payload(271828))]);
    const said = await call(format, SERVICE + "UnaryCall", asked);
    same([said.code, said.sizes], [StatusCode.OK, [314159]]);
  },
  async server_streaming(format) {
    const said = await call(format, SERVICE + "StreamingOutputCall", streamed(), { streams: true });
    same([said.code, said.sizes], [StatusCode.OK, SIZES]);
  },
  // Under Node the official client delivers a response only when complete, so this case uses fetch.
  async a_message_comes_before_the_next_is_sent(format) {
    const asked = Buffer.concat([bytes(2, integer(1, 10)), bytes(2, Buffer.concat([integer(1, 10), integer(2, 60e6)]))]);
    const frame = Buffer.concat([Buffer.from([0, 0, 0, 0, asked.length]), asked]);
    const giveUp = new AbortController();
    const answer = await fetch(url + SERVICE + "StreamingOutputCall", {
      method: "POST",
      headers: { "Content-Type": format === "text" ? "application/grpc-web-text" : "application/grpc-web" },
      body: format === "text" ? frame.toString("base64") : frame,
      signal: giveUp.signal,
    });
    let read = Buffer.alloc(0);
    // Each piece of base64 may be padded, so every group of four is decoded separately.
    const groups = () => read.toString().match(/.{4}/g) || [];
    const message = () => (format === "text" ? Buffer.concat(groups().map((four) => Buffer.from(four, "base64"))) : read);
    const isWhole = (bytes) => bytes.length >= 5 && bytes.length >= 5 + bytes.readUInt32BE(1);
    for await (const chunk of answer.body) {
      read = Buffer.concat([read, chunk]);
      if (isWhole(message())) break;
    }
    same(payloadLength(message().subarray(5)), 10);
    giveUp.abort();
  },
  async custom_metadata(format) {
    const metadata = { "x-grpc-test-echo-initial": "test_initial_metadata_value", "x-grpc-test-echo-trailing-bin": "q6ur" };
    const said = await call(format, SERVICE + "UnaryCall", integer(2, 1), { metadata });
    same([said.code, said.metadata["x-grpc-test-echo-initial"]], [StatusCode.OK, "test_initial_metadata_value"]);
    same(said.trailers["x-grpc-test-echo-trailing-bin"], "q6ur");
  },
  async status_code_and_message(format) {
    const said = await call(format, SERVICE + "UnaryCall", echoStatus(2, "test status message"));
    same([said.code, said.details], [StatusCode.UNKNOWN, "test status message"]);
  },
  async special_status_message(format) {
    const said = await call(format, SERVICE + "UnaryCall", echoStatus(2, SPECIAL));
    same([said.code, said.details], [StatusCode.UNKNOWN, SPECIAL]);
  },
  async unimplemented_method(format) {
    const said = await call(format, SERVICE + "UnimplementedCall", Buffer.alloc(0));
    same(said.code, StatusCode.UNIMPLEMENTED);
  },
  async unimplemented_service(format) {
    const said = await call(format, "/grpc.testing.UnimplementedService/UnimplementedCall", Buffer.alloc(0));
    same(said.code, StatusCode.UNIMPLEMENTED);
  },
  async preflight() {
    const answer = await fetch(url + SERVICE + "EmptyCall", {
      method: "OPTIONS",
      headers: { Origin: "http://a.test", "Access-Control-Request-Method": "POST" },
    });
    same(answer.status, 204);
    same(answer.headers.get("access-control-allow-origin"), "*");
    same(answer.headers.get("access-control-allow-methods"), "POST");
  },
};

async function main() {
  for (const format of ["binary", "text"]) {
    for (const [name, run] of Object.entries(CASES)) {
      const late = new Promise((_, reject) => setTimeout(reject, 60e3, new Error("no end within 60 s")).unref());
      const why = await Promise.race([run(format), late]).then(() => "", (error) => error.message);
      console.log(`${name} ${format}\t${why.replace(/\s+/g, " ")}`);
    }
  }
  process.exit(0);
}

main();
