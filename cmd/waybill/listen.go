package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
)

// listen opens what clients connect to, and returns its address as they write it.
func (c *serveCmd) listen() (ln net.Listener, at string, err error) {
	if (c.SSLCertfile == "") != (c.SSLKeyfile == "") {
		return nil, "", errors.New("--ssl-certfile and --ssl-keyfile need each other")
	}
	scheme := "http://"
	var secure *tls.Config
	if c.SSLCertfile != "" {
		cert, err := tls.LoadX509KeyPair(c.SSLCertfile, c.SSLKeyfile)
		if err != nil {
			return nil, "", fmt.Errorf("--ssl-certfile %s, --ssl-keyfile %s: %w", c.SSLCertfile, c.SSLKeyfile, err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
		scheme = "https://"
	}
	if c.UDS != "" {
		if ln, err = listenUnix(c.UDS); err != nil {
			return nil, "", fmt.Errorf("--uds: %w", err)
		}
		at = "unix:" + c.UDS
	} else {
		if ln, err = net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port))); err != nil {
			return nil, "", err
		}
		at = scheme + ln.Addr().String()
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	return ln, at, nil
}

// listenUnix listens on a socket that only its owner may use. A socket that a dead
// server left is replaced, one that answers is not, and neither is any other file.
func listenUnix(path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there and is no socket", path)
	default:
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: another server listens there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}
