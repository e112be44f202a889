package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// What is read of a file at most, in bytes. The largest maps have some millions
// of mappings of about a hundred bytes each.
const (
	maxText     = 2 << 30
	maxSettings = 1 << 20 // of a settings file, or one with a password
)

// readText reads a file of text. One that cannot be read, has more than most
// bytes, or is no text (a device, a database) is bad input.
func readText(what, name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, usagef("reading %s: %w", what, err)
	}
	defer file.Close()
	body, err := io.ReadAll(&textReader{in: file, left: most})
	if err != nil {
		return nil, usagef("reading %s: %s: %w", what, name, cause(err))
	}
	return bytes.TrimPrefix(body, []byte("\ufeff")), nil
}

// textReader ends with an error where text does: at a NUL byte, and after so
// many bytes. Without it a device would be read until the memory is used up.
type textReader struct {
	in   io.Reader
	left int64
}

func (t *textReader) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if t.left -= int64(n); t.left < 0 {
		return 0, errors.New("is too long")
	}
	if bytes.IndexByte(p[:n], 0) >= 0 {
		return 0, errors.New("is no text: it has a zero byte")
	}
	return n, err
}

// cause is what a system call said, without its name and those of files, which
// the caller gives.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// writeText writes a file as a whole or not at all. Pipes and devices, such as
// /dev/stdout, are written to and stay what they are, and so do links.
func writeText(what, name string, body []byte, mode fs.FileMode) error {
	write := replaceFile
	at, err := os.Stat(name)
	switch {
	case err == nil && at.IsDir():
		return usagef("writing %s: %s: is a directory", what, name)
	case err == nil && !at.Mode().IsRegular():
		write = os.WriteFile
	}
	target := name
	if linked, err := filepath.EvalSymlinks(name); err == nil {
		target = linked
	}
	if err := write(target, body, mode); err != nil {
		return usagef("writing %s: %s: %w", what, name, cause(err))
	}
	return nil
}

func replaceFile(name string, body []byte, mode fs.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".shardway-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(body)
	err = errors.Join(err, temporary.Sync(), temporary.Chmod(mode), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temporary.Name()) // it is of no use to anybody
	}
	return err
}
