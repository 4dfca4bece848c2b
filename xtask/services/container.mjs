// Makes a container in Azurite: node container.mjs ENDPOINT NAME.
import { createHmac } from "node:crypto";

// Every Azurite has this account; it is no secret.
const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const [endpoint, container] = process.argv.slice(2);
const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-08-06" };
const named = Object.entries(headers).map(([name, value]) => `${name}:${value}`);
const resource = `/${account}/${account}/${container}`;
const signed = ["PUT", ...Array(11).fill(""), ...named, resource, "restype:container"].join("\n");
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(signed).digest("base64");
const reply = await fetch(`${endpoint}/${account}/${container}?restype=container`, {
  method: "PUT",
  headers: { ...headers, authorization: `SharedKey ${account}:${signature}` },
});
// 409: it is there already.
if (!reply.ok && reply.status !== 409) {
  console.error(reply.status, await reply.text());
  process.exit(1);
}
