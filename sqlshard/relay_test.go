package sqlshard_test

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// relay is a server that passes all on to another one, each way after a delay,
// and does something about what it passes back: change is made for each
// connection; nil does nothing. The delays are exact: they are waited for busily,
// because the timers of many kernels cannot be that short.
func relay(t testing.TB, server string, delay time.Duration, change func() func([]byte)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	nothing := func([]byte) {}
	if change == nil {
		change = func() func([]byte) { return nothing }
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			pass(behind, client, delay, nothing)
			pass(client, behind, delay, change())
		}
	}()
	return l.Addr().String()
}

// chunk is what was read, and when it is to be passed on.
type chunk struct {
	b   []byte
	due time.Time
}

func pass(to, from net.Conn, delay time.Duration, do func([]byte)) {
	chunks := make(chan chunk, 64)
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				do(b[:n])
				chunks <- chunk{b[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer to.Close()
		for c := range chunks {
			for time.Now().Before(c.due) { // busily
			}
			_, _ = to.Write(c.b) // what cannot be written is read to its end all the same
		}
	}()
}

// otherPID changes the number of its process that PostgreSQL tells a client, as
// poolers do.
func otherPID() func([]byte) {
	changed := false
	return func(b []byte) {
		// BackendKeyData: K, length 12, process, secret
		if i := bytes.Index(b, []byte("K\x00\x00\x00\x0c")); i >= 0 && len(b) >= i+13 && !changed {
			b[i+5] ^= 0x40
			changed = true
		}
	}
}
