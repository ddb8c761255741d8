// Calls model.wasm of a folder by its model.mjs: a line of JSON that says what arrays follow, then these; results alike.
import fs from "node:fs";

const KINDS = {float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array};
const [folder] = process.argv.slice(2);
const {load} = await import(`${folder}/model.mjs`);
const model = await load(fs.readFileSync(`${folder}/model.wasm`));
const given = fs.readFileSync(0), line = given.indexOf(10);
const feeds = {};
let at = line + 1;
for (const [name, [type, dims, size]] of Object.entries(JSON.parse(given.subarray(0, line)))) {
  feeds[name] = {data: new KINDS[type](new Uint8Array(given.subarray(at, at + size)).buffer), dims};
  at += size;
}
let found;
for (let turn = 0; turn < 2; turn++) found = model.run(feeds);  // the second has an arena that is large enough
const rows = model.outputs.map(([name, type]) => [name, type, found[name].dims, found[name].data.byteLength]);
process.stdout.write(`${JSON.stringify(rows)}\n`);
for (const [name] of rows) process.stdout.write(Buffer.from(found[name].data.buffer));
