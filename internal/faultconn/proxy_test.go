package faultconn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// echo is a server that sends back what it gets and ends when its client has ended.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *faultconn.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// roundTrip sends a text and wants it back.
func roundTrip(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("sent %q, got back %q, %v", text, got, err)
	}
}

// wantSilence fails if an answer comes. It can only miss an answer that is slow.
func wantSilence(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v from a black hole, want none and no end", n, err)
	}
}

func TestPassesEverythingInOrder(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"at once": 0, "delayed": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultconn.New(t, echo(t))
			p.Delay(delay)
			c := dial(t, p)
			sent := bytes.Repeat([]byte("0123456789abcdef#"), 1<<16)
			go func() {
				_, _ = c.Write(sent)
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes back, %v, want the %d that were sent and an orderly end", len(got), err, len(sent))
			}
		})
	}
}

func TestCutAndRestore(t *testing.T) {
	t.Parallel()
	p := faultconn.New(t, echo(t))
	first, second := dial(t, p), dial(t, p)
	roundTrip(t, first, "a")
	roundTrip(t, second, "b")
	if p.Live() != 2 || p.Accepted() != 2 {
		t.Errorf("%d live, %d accepted, want 2 and 2", p.Live(), p.Accepted())
	}
	p.Cut()
	p.Cut() // twice is once
	for _, c := range []net.Conn{first, second} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading from a cut connection: %v, want a reset", err)
		}
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to a cut proxy: %v, want refused", err)
	}
	if p.Live() != 0 || p.Accepted() != 2 {
		t.Errorf("%d live, %d accepted, want 0 and 2", p.Live(), p.Accepted())
	}
	addr := p.Addr()
	p.Restore()
	p.Restore()
	if p.Addr() != addr {
		t.Errorf("restored at %s, was at %s", p.Addr(), addr)
	}
	roundTrip(t, dial(t, p), "c")
	if p.Live() != 1 || p.Accepted() != 3 {
		t.Errorf("%d live, %d accepted, want 1 and 3", p.Live(), p.Accepted())
	}
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	p := faultconn.New(t, echo(t))
	before := dial(t, p)
	roundTrip(t, before, "a")
	p.BlackHole()
	after := dial(t, p) // is accepted
	for _, c := range []net.Conn{before, after} {
		if _, err := io.WriteString(c, "lost"); err != nil {
			t.Fatal(err)
		}
		wantSilence(t, c)
	}
	p.Restore()
	roundTrip(t, dial(t, p), "b")
}

// The time is only bounded from below, which no slow machine breaks.
func TestDelayHoldsEachWay(t *testing.T) {
	t.Parallel()
	p := faultconn.New(t, echo(t))
	c := dial(t, p)
	roundTrip(t, c, "a")
	const delay = 20 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	roundTrip(t, c, "b")
	if took := time.Since(start); took < 2*delay {
		t.Errorf("a round trip took %v, want at least %v", took, 2*delay)
	}
}

func TestLiveFollowsTheClients(t *testing.T) {
	t.Parallel()
	p := faultconn.New(t, echo(t))
	c := dial(t, p)
	roundTrip(t, c, "a")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for p.Live() != 0 {
		if ctx.Err() != nil {
			t.Fatalf("%d live after the only client ended", p.Live())
		}
		runtime.Gosched()
	}
}

// A client of a server that is down learns so although the proxy accepted it.
func TestDeadTarget(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", faultconn.New(t, target).Addr())
	if errors.Is(err, syscall.ECONNRESET) {
		return // the reset was there before the connection was
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from a server that is down", n)
	}
}

func TestRealServer(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			d := e.NewDatabase(t)
			p := faultconn.New(t, d.Addr())
			d.Host, d.Port = p.Host(), p.Port()
			pool := d.Open(t)
			conn, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.ExecContext(t.Context(), "CREATE TABLE t (n int)"); err != nil {
				t.Fatal(err)
			}
			p.Cut()
			if _, err := conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); err == nil {
				t.Error("a statement went through a cut connection")
			}
			p.Restore()
			if _, err := pool.ExecContext(t.Context(), "INSERT INTO t VALUES (2)"); err != nil {
				t.Errorf("after Restore: %v", err)
			}
		})
	}
}
