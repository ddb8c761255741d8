//! Reads images from standard input, 64 floats each, and writes ten probabilities for each to standard output.
//!
//!     rustc classify.rs -L . -l digits

use std::ffi::{c_char, c_int, c_void, CStr};
use std::io::{Read, Write};

#[repr(C)]
struct Array {
    data: *mut c_void,
    bytes: i64,
    rank: i64,
    dims: [i64; 8],
}

/// What the library keeps for a thread that calls it.
enum Context {}

extern "C" {
    fn digits_open(context: *mut *mut Context) -> c_int;
    fn digits_close(context: *mut Context);
    fn digits_error(context: *const Context) -> *const c_char;
    fn digits_set_threads(context: *mut Context, threads: i64) -> c_int;
    fn digits_sizes(context: *mut Context, inputs: *const Array, outputs: *mut Array) -> c_int;
    fn digits_run(context: *mut Context, inputs: *const Array, outputs: *mut Array) -> c_int;
}

struct Model(*mut Context);

impl Model {
    fn open(threads: i64) -> Result<Model, String> {
        let mut context = std::ptr::null_mut();
        let code = unsafe { digits_open(&mut context) };
        let model = Model(context);
        model.check(code)?;
        model.check(unsafe { digits_set_threads(context, threads) })?;
        Ok(model)
    }

    fn check(&self, code: c_int) -> Result<(), String> {
        match code {
            0 => Ok(()),
            _ => Err(unsafe { CStr::from_ptr(digits_error(self.0)) }.to_string_lossy().into_owned()),
        }
    }

    /// The probabilities of images: 64 pixels each.
    fn classify(&mut self, pixels: &mut [f32]) -> Result<Vec<f32>, String> {
        let images = pixels.len() as i64 / 64;
        let input = Array {
            data: pixels.as_mut_ptr().cast(),
            bytes: std::mem::size_of_val(pixels) as i64,
            rank: 4,
            dims: [images, 1, 8, 8, 0, 0, 0, 0],
        };
        let mut output = Array { data: std::ptr::null_mut(), bytes: 0, rank: 0, dims: [0; 8] };
        self.check(unsafe { digits_sizes(self.0, &input, &mut output) })?;
        let mut result = vec![0.0; output.bytes as usize / std::mem::size_of::<f32>()];
        output.data = result.as_mut_ptr().cast();
        self.check(unsafe { digits_run(self.0, &input, &mut output) })?;
        Ok(result)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { digits_close(self.0) }
    }
}

fn main() -> Result<(), String> {
    let threads = std::env::args().nth(2).map_or(1, |text| text.parse().expect("a number of threads"));
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let mut pixels: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let found = Model::open(threads)?.classify(&mut pixels)?;
    let out: Vec<u8> = found.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::io::stdout().write_all(&out).map_err(|error| error.to_string())
}
