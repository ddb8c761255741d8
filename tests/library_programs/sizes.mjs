// Calls model.wasm of a folder for each number that is given: how long `counted` is, its first element and its last, or
// what the call says that it cannot do.
import fs from "node:fs";

const [folder, ...ends] = process.argv.slice(2);
const {load} = await import(`${folder}/model.mjs`);
const model = await load(fs.readFileSync(`${folder}/model.wasm`));
const x = {data: new Float32Array(6), dims: [2, 3]};
for (const end of ends) {
  try {
    const {data, dims} = model.run({x, end: {data: BigInt64Array.of(BigInt(end)), dims: []}}).counted;
    console.log(dims[0], String(data[0]), String(data.at(-1)));
  } catch (error) {
    console.log(error.message);
  }
}
