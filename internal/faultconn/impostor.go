package faultconn

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
)

// Heard is what an impostor got to know from a client, in clear and through
// encryption.
type Heard struct{ Plain, Encrypted []byte }

// Listener is a connection that remembers all that was read from it.
type Listener struct {
	net.Conn

	heard bytes.Buffer
}

// Read reads from the connection.
func (l *Listener) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.heard.Write(p[:n])
	return n, err
}

// Heard returns what was read so far.
func (l *Listener) Heard() Heard { return Heard{Plain: l.heard.Bytes()} }

// HearTLS offers encryption, and returns with what was read so far the first
// thing that the client sends through it, if it accepts.
func (l *Listener) HearTLS(config *tls.Config) Heard {
	through := tls.Server(l, config)
	var first []byte
	if through.Handshake() == nil {
		first = make([]byte, 512)
		n, _ := through.Read(first)
		first = first[:n]
	}
	return Heard{l.heard.Bytes(), first}
}

// Impostor takes the place of a server for a client that connects once, however
// often it tries: serve talks to each connection and says what it has heard. It
// is an error of the test that the client succeeds, or that one of the secrets
// is heard in clear. It reports whether the first one came through encryption.
func Impostor(t testing.TB, serve func(*Listener) Heard, connect func(addr string) error, secrets ...string) (told bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan Heard, 16)
	go func() {
		defer close(all)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all <- serve(&Listener{Conn: conn})
			_ = conn.Close()
		}
	}()
	if connect(l.Addr().String()) == nil {
		t.Error("connected to what is no server")
	}
	_ = l.Close()
	for h := range all {
		for _, secret := range secrets {
			if bytes.Contains(h.Plain, []byte(secret)) {
				t.Errorf("%q was sent in clear: %q", secret, h.Plain)
			}
		}
		told = told || bytes.Contains(h.Encrypted, []byte(secrets[0]))
	}
	return told
}
