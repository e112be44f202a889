package mysql

import (
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
	"github.com/shardway/shardway/internal/faultconn"
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

// serve greets one client and hears what it says. Without a configuration the
// handshake is broken.
func serve(l *faultconn.Listener, encrypts bool, config *tls.Config) faultconn.Heard {
	if _, err := l.Write(greeting(encrypts)); err != nil {
		return faultconn.Heard{}
	}
	request := make([]byte, 36) // a client that encrypts asks for it first, without its name
	if _, err := io.ReadFull(l, request); err != nil || !encrypts {
		_, _ = l.Read(make([]byte, 512)) // whatever it says without having asked
		return l.Heard()
	}
	if config == nil {
		_, _ = l.Write([]byte("no such thing"))
		_, _ = io.Copy(io.Discard, l)
		return l.Heard()
	}
	return l.HearTLS(config)
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
			serving := func(l *faultconn.Listener) faultconn.Heard { return serve(l, c.encrypts, c.config) }
			connect := func(addr string) error {
				login := shardway.Credentials{User: "anna-herself", Password: "s3cr3t"}
				conn, err := connectorFor(t, Engine{Options: c.options}, addr, "db-of-anna", login).Connect(t.Context())
				if err == nil {
					_ = conn.Close()
				}
				return err
			}
			login := faultconn.Impostor(t, serving, connect, "anna-herself", "db-of-anna", "s3cr3t")
			if login != c.login {
				t.Errorf("the login reached the server: %v, want %v", login, c.login)
			}
		})
	}
}
