package mysql

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/shardway/shardway"
)

// selfSigned is a server's certificate that no authority vouches for.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	body, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{body}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}

// greeting is how a server begins, with or without the ability to encrypt.
func greeting(encrypts bool) []byte {
	const protocol41, secure, pluginAuth, canEncrypt = 0x200, 0x8000, 0x80000, 0x800
	flags := uint32(protocol41 | secure | pluginAuth)
	if encrypts {
		flags |= canEncrypt
	}
	b := append([]byte{10}, "8.0.0-test\x00"...)
	b = append(b, 1, 0, 0, 0)
	b = append(b, "12345678\x00"...)
	b = append(b, byte(flags), byte(flags>>8), 45, 2, 0, byte(flags>>16), byte(flags>>24), 21)
	b = append(b, make([]byte, 10)...)
	b = append(b, "123456789012\x00mysql_native_password\x00"...)
	return append([]byte{byte(len(b)), 0, 0, 0}, b...)
}

// recorded keeps what is read from a connection.
type recorded struct {
	net.Conn

	to *bytes.Buffer
}

func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.to.Write(p[:n])
	return n, err
}

// serve greets one client and returns what it sends in clear, and what through
// encryption. Without a configuration the handshake is broken.
func serve(conn net.Conn, encrypts bool, config *tls.Config) (plain, encrypted []byte) {
	defer conn.Close()
	var all bytes.Buffer
	tee := &recorded{Conn: conn, to: &all}
	if _, err := conn.Write(greeting(encrypts)); err != nil {
		return nil, nil
	}
	request := make([]byte, 36) // a client that encrypts asks for it first, without its name
	if _, err := io.ReadFull(tee, request); err != nil || !encrypts {
		_, _ = tee.Read(make([]byte, 512)) // whatever it says without having asked
		return all.Bytes(), nil
	}
	if config == nil {
		_, _ = conn.Write([]byte("no such thing"))
		_, _ = io.Copy(io.Discard, tee)
		return all.Bytes(), nil
	}
	through := tls.Server(tee, config)
	if through.Handshake() == nil {
		first := make([]byte, 512)
		n, _ := through.Read(first)
		encrypted = first[:n]
	}
	return all.Bytes(), encrypted
}

// SEC-02: when encryption is required, a server that has none, that breaks the
// handshake, or that nobody vouches for, gets neither login nor database in
// clear, however often it is tried.
func TestNoPlainTextAfterTLSFails(t *testing.T) {
	t.Parallel()
	config := selfSigned(t)
	for name, c := range map[string]struct {
		options  string
		encrypts bool
		config   *tls.Config
		login    bool // reaches the server, encrypted
	}{
		"refused":                 {"tls=true", false, nil, false},
		"refused, required":       {"tls=skip-verify", false, nil, false},
		"broken handshake":        {"tls=true", true, nil, false},
		"broken, required":        {"tls=skip-verify", true, nil, false},
		"unknown authority":       {"tls=true", true, config, false},
		"required, but unchecked": {"tls=skip-verify", true, config, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			type heard struct{ plain, encrypted []byte }
			all := make(chan heard, 16)
			go func() {
				defer close(all)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					plain, encrypted := serve(conn, c.encrypts, c.config)
					all <- heard{plain, encrypted}
				}
			}()
			connector := connectorFor(t, Engine{Options: c.options}, l.Addr().String(), "db-of-anna", shardway.Credentials{User: "anna-herself", Password: "s3cr3t"})
			if conn, err := connector.Connect(t.Context()); err == nil {
				_ = conn.Close()
				t.Error("connected to what is no server")
			}
			_ = l.Close()
			login := false
			for h := range all {
				for _, word := range []string{"anna-herself", "db-of-anna", "s3cr3t"} {
					if bytes.Contains(h.plain, []byte(word)) {
						t.Errorf("%q was sent in clear: %q", word, h.plain)
					}
				}
				login = login || bytes.Contains(h.encrypted, []byte("anna-herself"))
			}
			if login != c.login {
				t.Errorf("the login reached the server: %v, want %v", login, c.login)
			}
		})
	}
}
