// Reads images from standard input, 64 floats each, and writes ten probabilities for each to standard output.
//
//	CGO_CFLAGS=-I. CGO_LDFLAGS="-L. -ldigits" go build classify.go
package main

/*
#include <stdlib.h>
#include "digits.h"
*/
import "C"

import (
	"errors"
	"io"
	"log"
	"os"
	"strconv"
	"unsafe"
)

const pixels, classes = 64, 10

// classify gives the probabilities of images in C's memory: nothing of Go's is handed over but for the call.
func classify(images []byte, threads int64) ([]byte, error) {
	var context *C.digits_context
	code := C.digits_open(&context)
	defer C.digits_close(context)
	if code == 0 {
		code = C.digits_set_threads(context, C.int64_t(threads))
	}
	count := len(images) / (4 * pixels)
	input, output := C.CBytes(images), C.malloc(C.size_t(4*classes*count+1))
	defer C.free(input)
	defer C.free(output)
	in := C.tilewright_array{data: input, bytes: C.int64_t(len(images)), rank: 4}
	in.dims = [8]C.int64_t{C.int64_t(count), 1, 8, 8}
	out := C.tilewright_array{data: output, bytes: C.int64_t(4 * classes * count)}
	if code == 0 {
		code = C.digits_run(context, &in, &out)
	}
	if code != 0 {
		return nil, errors.New(C.GoString(C.digits_error(context)))
	}
	return C.GoBytes(unsafe.Pointer(output), C.int(4*classes*count)), nil
}

func main() {
	threads := int64(1)
	if len(os.Args) > 2 {
		threads, _ = strconv.ParseInt(os.Args[2], 10, 64)
	}
	images, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	found, err := classify(images, threads)
	if err != nil {
		log.Fatal(err)
	}
	os.Stdout.Write(found)
}
