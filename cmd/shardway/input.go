package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// maxLine bounds a line of input. Keys and names have at most 128 bytes.
const maxLine = 64 << 10

// input is a reader that ends with a context, although a read from a pipe
// cannot be interrupted, and refuses lines without end.
type input struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no place for it
	chunks <-chan chunk
	rest   []byte
	err    error // what the reader ended with, after rest
	line   int   // its number
	length int   // read of it so far
	long   bool  // lines may have any length
}

type chunk struct {
	data []byte
	err  error
}

// newInput begins to read. A read that is under way when ctx ends is left to
// itself: the program is about to end.
func newInput(ctx context.Context, in io.Reader) *input {
	chunks := make(chan chunk)
	go func() {
		for {
			buffer := make([]byte, maxLine)
			n, err := in.Read(buffer)
			select {
			case chunks <- chunk{buffer[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &input{ctx: ctx, chunks: chunks, line: 1}
}

// Read returns what has arrived.
func (i *input) Read(p []byte) (int, error) {
	for len(i.rest) == 0 {
		if i.err != nil {
			return 0, i.err
		}
		select {
		case <-i.ctx.Done():
			return 0, i.ctx.Err()
		case c := <-i.chunks:
			i.rest, i.err = c.data, c.err
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	if err := i.count(p[:n]); err != nil {
		i.rest, i.err = nil, err
		return 0, err
	}
	return n, nil
}

func (i *input) count(data []byte) error {
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			i.length += len(data)
			break
		}
		if i.length+end > maxLine {
			break
		}
		i.line, i.length, data = i.line+1, 0, data[end+1:]
	}
	if i.length > maxLine && !i.long {
		return fmt.Errorf("line %d is longer than %d bytes", i.line, maxLine)
	}
	return nil
}
