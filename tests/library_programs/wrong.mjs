// Calls model.wasm of a folder, which takes x: f32[n, 5] and i: i64[k], wrongly, and prints what each call says.
import fs from "node:fs";

const [folder] = process.argv.slice(2);
const {load} = await import(`${folder}/model.mjs`);
const model = await load(fs.readFileSync(`${folder}/model.wasm`));
const x = {data: new Float32Array(10), dims: [2, 5]}, i = {data: BigInt64Array.of(0n), dims: [1]};
const wrong = [
  {x},
  {x: x.data, i},
  {x: {data: [1, 2], dims: [2, 5]}, i},
  {x: {data: new Float64Array(10), dims: [2, 5]}, i},
  {x: {data: x.data, dims: "25"}, i},
  {x: {data: x.data, dims: [2, 2.5]}, i},
  {x: {data: x.data, dims: [2, 5, 1]}, i},
  {x: {data: x.data, dims: [1, 1, 1, 1, 1, 1, 1, 1, 2, 5]}, i},
  {x: {data: x.data, dims: [-2, 5]}, i},
  {x: {data: x.data, dims: [5, 2]}, i},
  {x: {data: x.data, dims: [3, 5]}, i},
  {x: {data: x.data, dims: [2 ** 52, 5]}, i},
  {x, i: {data: BigInt64Array.of(7n), dims: [1]}},
];
for (const feeds of wrong) {
  try {
    model.run(feeds);
    console.log("nothing");
  } catch (error) {
    console.log(error.message);
  }
}
console.log(model.run({x, i}).y.data.join());
