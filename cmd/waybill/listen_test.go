package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a self-signed one for 127.0.0.1 and returns its files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for f, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: kder}} {
		if err := os.WriteFile(f, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSAndUnixSocketsServeAndNoticeHangUps(t *testing.T) {
	cert, key := certificate(t)
	sock := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--ssl-certfile", cert, "--ssl-keyfile", key}, "https://127.0.0.1:"},
		{[]string{"--uds", sock}, "unix:" + sock},
	} {
		p := start(t, nil, append([]string{"serve", tinyModel, "--port", "0", "--api-key", "s3cret-key"}, c.args...)...)
		within(t, 30*time.Second, "ready", func() bool { return strings.Contains(p.log(), c.want) })
		url := "http://unix"
		if strings.HasPrefix(c.want, "https") {
			at := strings.Index(p.log(), c.want)
			url = strings.Fields(p.log()[at:])[0]
		} else if info, err := os.Stat(sock); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
		}
		client := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if url == "http://unix" {
					network, addr = "unix", sock
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		ask := func(ctx context.Context, body string) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer s3cret-key")
			return client.Do(req)
		}
		res, err := ask(context.Background(), completion("[1,2,3]", 3, false))
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %v %v", c.want, res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		ctx, cancel := context.WithCancel(context.Background())
		streamed, err := ask(ctx, completion("[1,2,3]", 900, true))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		streamed.Body.Close()
		within(t, 5*time.Second, "the abort is logged", func() bool { return strings.Contains(p.log(), "reason=abort") })
		if strings.Contains(p.log(), "s3cret-key") {
			t.Error("the API key is in the log")
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--ssl-certfile", cert}, "--ssl-keyfile"},
		{[]string{"--ssl-certfile", cert, "--ssl-keyfile", cert}, "--ssl-keyfile"},
		{[]string{"--uds", cert}, "no socket"},
	} {
		p := start(t, nil, append([]string{"serve", tinyModel, "--port", "0"}, c.args...)...)
		if status := p.exit(); status != 2 || !strings.Contains(p.log(), c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, p.log())
		}
	}
}

func TestTheServerListensOnLoopbackUnlessTold(t *testing.T) {
	p := start(t, nil, "serve", tinyModel, "--port", "0")
	within(t, 30*time.Second, "ready", func() bool { return strings.Contains(p.log(), "http://127.0.0.1:") })
}
