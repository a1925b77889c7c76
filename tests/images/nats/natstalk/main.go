// Command natstalk publishes a message to a NATS server and receives it back, from the same server or from
// another one of its cluster, or prints an error.
//
//	natstalk [-server URL] [-from URL] SUBJECT TEXT
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
	from := flag.String("from", "", "`URL` of the server to receive from; that of -server if it is empty")
	flag.Parse()
	if flag.NArg() != 2 {
		return errors.New("want SUBJECT TEXT")
	}
	to, err := connect(*server)
	if err != nil {
		return err
	}
	defer to.Close()
	receiver := to
	if *from != "" {
		if receiver, err = connect(*from); err != nil {
			return err
		}
		defer receiver.Close()
	}
	return talk(to, receiver, flag.Arg(0), flag.Arg(1))
}

// connect connects to a server. One that has just started may not listen yet.
func connect(server string) (*nats.Conn, error) {
	conn, err := nats.Connect(server, nats.Timeout(patience), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", server, err)
	}
	if err := conn.FlushTimeout(patience); err != nil {
		return nil, fmt.Errorf("wait for %s: %w", server, err)
	}
	return conn, nil
}

func talk(to, from *nats.Conn, subject, text string) error {
	subscription, err := from.SubscribeSync(subject)
	if err != nil {
		return fmt.Errorf("subscribe to %q: %w", subject, err)
	}
	if err := from.FlushTimeout(patience); err != nil {
		return fmt.Errorf("subscribe to %q: %w", subject, err)
	}
	message, err := exchange(to, subscription, subject, text)
	if err != nil {
		return fmt.Errorf("receive from %q: %w", subject, err)
	}
	fmt.Printf("server %s %s\n", from.ConnectedServerName(), from.ConnectedServerVersion())
	fmt.Printf("received on %s: %s\n", message.Subject, message.Data)
	return nil
}

// exchange publishes until the message arrives: a cluster needs a moment to tell its servers who has subscribed.
func exchange(to *nats.Conn, subscription *nats.Subscription, subject, text string) (*nats.Msg, error) {
	for late := time.Now().Add(patience); ; {
		if err := to.Publish(subject, []byte(text)); err != nil {
			return nil, err
		}
		message, err := subscription.NextMsg(100 * time.Millisecond)
		if err == nil || !errors.Is(err, nats.ErrTimeout) || time.Now().After(late) {
			return message, err
		}
	}
}
