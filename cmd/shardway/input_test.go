package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestInput hands on what it reads, however it arrives, and counts lines.
func TestInput(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("abc,def\n", 20_000) + "the last line"
	for name, in := range map[string]io.Reader{
		"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		"with the end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		got, err := io.ReadAll(newInput(t.Context(), in))
		if err != nil || string(got) != text {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(text), err)
		}
	}
	if _, err := io.ReadAll(newInput(t.Context(), iotest.ErrReader(io.ErrClosedPipe))); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a failing reader: %v", err)
	}
}

// TestInputWithoutEnd refuses a line that does not end, by its number.
func TestInputWithoutEnd(t *testing.T) {
	t.Parallel()
	in := io.MultiReader(strings.NewReader("one\ntwo\n"), endless{})
	if _, err := io.ReadAll(newInput(t.Context(), in)); err == nil || !strings.Contains(err.Error(), "line 3 is longer") {
		t.Errorf("ReadAll = %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestInputIsInterrupted ends with its context although nothing arrives.
func TestInputIsInterrupted(t *testing.T) {
	t.Parallel()
	pipe, writer := io.Pipe()
	defer writer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	in := newInput(ctx, pipe)
	cancel()
	if _, err := io.ReadAll(in); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadAll = %v", err)
	}
}
