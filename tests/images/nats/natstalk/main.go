// Command natstalk publishes a message to a NATS server and receives it back, or prints an error.
//
//	natstalk [-server URL] SUBJECT TEXT
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

// patience limits each step of the server.
const patience = 10 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "natstalk:", err)
		os.Exit(1)
	}
}

func run() error {
	server := flag.String("server", nats.DefaultURL, "`URL` of the server")
	flag.Parse()
	if flag.NArg() != 2 {
		return errors.New("want SUBJECT TEXT")
	}
	return talk(*server, flag.Arg(0), flag.Arg(1))
}

func talk(server, subject, text string) error {
	// A server that has just started may not listen yet.
	conn, err := nats.Connect(server, nats.Timeout(patience), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", server, err)
	}
	defer conn.Close()
	subscription, err := conn.SubscribeSync(subject)
	if err != nil {
		return fmt.Errorf("subscribe to %q: %w", subject, err)
	}
	if err := conn.FlushTimeout(patience); err != nil {
		return fmt.Errorf("wait for %s: %w", server, err)
	}
	if err := conn.Publish(subject, []byte(text)); err != nil {
		return fmt.Errorf("publish to %q: %w", subject, err)
	}
	message, err := subscription.NextMsg(patience)
	if err != nil {
		return fmt.Errorf("receive from %q: %w", subject, err)
	}
	fmt.Printf("server %s %s\n", conn.ConnectedServerName(), conn.ConnectedServerVersion())
	fmt.Printf("received on %s: %s\n", message.Subject, message.Data)
	return nil
}
