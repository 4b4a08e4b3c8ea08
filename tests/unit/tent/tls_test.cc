// SPDX-License-Identifier: Apache-2.0
// Tests certificates, with and without a secret: sessions without I/O, and a control server over the loopback
// interface.
#include "tent/control/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tent/control/client.h"
#include "tent/control/handshake.h"
#include "tent/control/server.h"
#include "tent/engine/clock.h"

namespace rove::tent {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

// A certificate authority, with its files in their own folder.
class Authority {
  public:
    explicit Authority(const char* name) : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(make(name, "")) {
        EXPECT_NE(mkdtemp(folder_.data()), nullptr);
        write("ca.pem", certificate_.get(), nullptr);
    }
    ~Authority() { std::filesystem::remove_all(folder_); }

    // Signs a certificate of `name` for the host, and returns the files of certificate and key.
    TlsFiles sign(const std::string& name, const char* host = "127.0.0.1", long days = 2) {
        const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
        const Certificate certificate = make(name.c_str(), host, key.get(), days);
        write(name + ".pem", certificate.get(), nullptr);
        write(name + ".key", nullptr, key.get());
        return {folder_ + "/ca.pem", folder_ + "/" + name + ".pem", folder_ + "/" + name + ".key"};
    }

  private:
    Certificate make(const char* name, const std::string& host, EVP_PKEY* key = nullptr, long days = 2) {
        constexpr long kDay = 86'400;
        Certificate made(X509_new(), X509_free);
        X509_set_version(made.get(), 2);
        ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
        X509_gmtime_adj(X509_getm_notBefore(made.get()), -3 * kDay);
        X509_gmtime_adj(X509_getm_notAfter(made.get()), days * kDay);
        X509_set_pubkey(made.get(), key != nullptr ? key : key_.get());
        X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "O", MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
        X509_set_issuer_name(made.get(), X509_get_subject_name(key != nullptr ? certificate_.get() : made.get()));
        extend(made.get(), NID_basic_constraints, key != nullptr ? "CA:FALSE" : "critical,CA:TRUE");
        if (!host.empty()) extend(made.get(), NID_subject_alt_name, ("IP:" + host).c_str());
        EXPECT_GT(X509_sign(made.get(), key_.get(), EVP_sha256()), 0);
        return made;
    }
    static void extend(X509* certificate, int what, const char* value) {
        X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
        ASSERT_NE(extension, nullptr) << value;
        X509_add_ext(certificate, extension, -1);
        X509_EXTENSION_free(extension);
    }
    void write(const std::string& name, X509* certificate, EVP_PKEY* key) const {
        std::FILE* const file = std::fopen((folder_ + "/" + name).c_str(), "w");
        ASSERT_NE(file, nullptr);
        const int written = certificate != nullptr
                                ? PEM_write_X509(file, certificate)
                                : PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
        EXPECT_EQ(written, 1);
        std::fclose(file);
    }

    std::string folder_ = "/tmp/rove-tls-XXXXXX";
    long serial_ = 0;
    Key key_;
    Certificate certificate_;
};

std::shared_ptr<const TlsContext> context_of(const TlsFiles& files) {
    std::shared_ptr<const TlsContext> context;
    const Status status = TlsContext::load(files, "tls_", &context);
    EXPECT_TRUE(status.ok()) << status.message();
    return context;
}

Credentials credentials_of(const TlsFiles& files, const std::string& secret = "") {
    return {Secret(secret), context_of(files)};
}

// Both ends of a connection. Each end receives `piece` bytes at a time.
struct Pair {
    Pair(const TlsContext& ours, const TlsContext& theirs, const std::string& host = "")
        : initiator(ours, TlsSession::End::kInitiator, host), acceptor(theirs, TlsSession::End::kAcceptor) {}
    // Exchanges data until no more is sent, or a session has ended.
    void talk(size_t piece) {
        bool goes_on = initiator.take({}, &came_back, &there);
        while (goes_on && (!there.empty() || !back.empty())) {
            std::string& from = there.empty() ? back : there;
            const std::string part = from.substr(0, piece);
            from.erase(0, piece);
            goes_on = &from == &there ? acceptor.take(part, &came, &back) : initiator.take(part, &came_back, &there);
        }
        while (!back.empty()) initiator.take(std::exchange(back, ""), &came_back, &there);
    }

    TlsSession initiator, acceptor;
    std::string there, back, came, came_back;
};

Authority& ours() {
    static Authority authority("ours");
    return authority;
}

}  // namespace

TEST(Tls, SaysWhatWasSaidInAnyPieces) {
    const auto context = context_of(ours().sign("engine"));
    for (const size_t piece : {1, 7, 1000, 100'000}) {
        Pair pair(*context, *context);
        pair.talk(piece);
        ASSERT_TRUE(pair.initiator.is_open() && pair.acceptor.is_open()) << pair.acceptor.error();
        const std::string text(100'000, 't');
        std::string wire;
        ASSERT_TRUE(pair.initiator.seal(text, &wire));
        EXPECT_EQ(wire.find("tttt"), std::string::npos) << "it is not encrypted";
        for (; !wire.empty(); wire.erase(0, piece * 100))
            ASSERT_TRUE(pair.acceptor.take(wire.substr(0, piece * 100), &pair.came, &pair.back));
        EXPECT_EQ(pair.came, text);
    }
}

TEST(Tls, WhoIsNotSignedByTheAuthorityIsRefusedByBothEnds) {
    Authority others("others");
    const auto mine = context_of(ours().sign("engine")), strange = context_of(others.sign("stranger"));
    const auto late = context_of(ours().sign("late", "127.0.0.1", -1));
    TlsFiles self = others.sign("believer");
    self.ca_file = ours().sign("engine").ca_file;  // it trusts us, but we do not trust it
    const auto believer = context_of(self);
    const auto refuses = [](const auto& initiator, const auto& acceptor) {
        Pair pair(*initiator, *acceptor);
        pair.talk(10'000);
        EXPECT_FALSE(pair.acceptor.is_open());
        return std::pair(pair.initiator.error(), pair.acceptor.error());
    };
    const std::string unknown = "unable to get local issuer certificate";
    EXPECT_EQ(refuses(mine, strange),
              std::pair(std::string("self-signed certificate in certificate chain"), std::string()));
    EXPECT_EQ(refuses(believer, mine), std::pair(std::string("tlsv1 alert unknown ca"), unknown));
    EXPECT_EQ(refuses(late, mine).second, "certificate has expired");
}

TEST(Tls, ACertificateIsOfTheHostWhereAHostIsAskedFor) {
    const auto context = context_of(ours().sign("engine", "10.0.0.7"));
    for (const auto& [host, right] :
         {std::pair{"10.0.0.7", true}, {"10.0.0.8", false}, {"node-7", false}, {"", true}}) {
        Pair pair(*context, *context, host);
        pair.talk(10'000);
        EXPECT_EQ(pair.acceptor.is_open(), right) << host << ": " << pair.initiator.error();
    }
}

TEST(Tls, JunkIsNoSession) {
    const auto context = context_of(ours().sign("engine"));
    for (const std::string& junk :
         {std::string("ROVE"), std::string("\x16\x03\x01\xFF\xFF", 5) + std::string(70'000, 'x'),
          std::string("\x16") + std::string(300, '\0')}) {
        TlsSession acceptor(*context, TlsSession::End::kAcceptor);
        std::string plain, wire;
        EXPECT_FALSE(acceptor.take(junk, &plain, &wire));
        EXPECT_NE(acceptor.error(), "");
        EXPECT_EQ(plain, "");
        EXPECT_FALSE(acceptor.take(junk, &plain, &wire)) << "it stays so";
        EXPECT_FALSE(acceptor.seal("x", &wire));
    }
}

TEST(Tls, FilesThatCannotBeUsedAreNamed) {
    const TlsFiles right = ours().sign("engine");
    std::shared_ptr<const TlsContext> context;
    TlsFiles wrong = right;
    wrong.ca_file = "/nowhere";
    EXPECT_NE(TlsContext::load(wrong, "tls_", &context).message().find("key 'tls_ca_file': '/nowhere'"),
              std::string::npos);
    wrong = right;
    wrong.cert_file = right.key_file;
    EXPECT_NE(TlsContext::load(wrong, "tls_", &context).message().find("key 'tls_cert_file'"), std::string::npos);
    wrong = right;
    wrong.key_file = ours().sign("another").key_file;
    EXPECT_NE(TlsContext::load(wrong, "tls_", &context).message().find("key 'tls_key_file'"), std::string::npos);
    EXPECT_EQ(context, nullptr);
}

namespace {

struct TlsServer {
    explicit TlsServer(Credentials given) : credentials(std::move(given)) {
        EXPECT_EQ(server.listen(resolve("127.0.0.1", 0, 0), 0), "");
        server.start();
        address = join_address("127.0.0.1", server.port());
    }
    // Returns "" if the server answered, otherwise the reason of the failure.
    std::string call(const Credentials& ours) const {
        std::string why;
        ControlClient client(address, ours);
        const Json question{{"question", std::string(30'000, 'q')}};
        for (int i = 0; i < 2; ++i) {  // the second call uses the connection of the first
            const auto answer = client.call(MessageType::kDescribe, question, 10 * kSecond, &why);
            if (!answer) return why;
            EXPECT_EQ((*answer)["text"].get<std::string>().size(), 200'000u);
        }
        return "";
    }

    const Credentials credentials;
    Jobs jobs;
    std::atomic<int> asked{0}, ended{0}, data{0};
    ControlServer server{jobs,
                         credentials,
                         {.answer =
                              [this](MessageType, const Json&) {
                                  ++asked;
                                  return Json{{"ok", true}, {"text", std::string(200'000, 'x')}};
                              },
                          .ended = [this](const Json&) { ++ended; },
                          .take_data =
                              [this](Stream stream) {
                                  char text[4] = {};
                                  EXPECT_TRUE(stream.receive(text, 4, monotonic_ns() + 10 * kSecond));
                                  EXPECT_TRUE(stream.send(text, 4, monotonic_ns() + 10 * kSecond));
                                  ++data;
                              }}};
    std::string address;
};

}  // namespace

TEST(TlsServer, AnswersWhoHasACertificateAndTellsOthersWhyNot) {
    Authority others("others");
    const TlsServer server(credentials_of(ours().sign("server")));
    const Credentials plain, client = credentials_of(ours().sign("client"));
    TlsFiles self = others.sign("believer");
    self.ca_file = ours().sign("client").ca_file;
    EXPECT_EQ(server.call(client), "");
    EXPECT_EQ(server.asked.load(), 2);
    EXPECT_EQ(server.call(plain), "the peer requires TLS, and this engine has no certificate");
    EXPECT_EQ(server.call({Secret("a secret of 24 characters"), nullptr}),
              "the peer requires TLS, and this engine has no certificate");
    EXPECT_EQ(server.call(credentials_of(others.sign("stranger"))).rfind("TLS: ", 0), 0u);
    EXPECT_EQ(server.call(credentials_of(self)), "TLS: tlsv1 alert unknown ca");
    EXPECT_EQ(server.call(credentials_of(ours().sign("client"), "a secret of 24 characters")),
              "the peer has no secret, and this engine has a secret");
    EXPECT_EQ(server.asked.load(), 2) << "none of them was answered";
    const TlsServer without{Credentials{}};
    EXPECT_EQ(without.call(client), "TLS: the peer does not use TLS");
}

TEST(TlsServer, ASecretIsProvedWithinTls) {
    const std::string word = "a secret of 24 characters";
    const TlsServer server(credentials_of(ours().sign("server"), word));
    EXPECT_EQ(server.call(credentials_of(ours().sign("client"), word)), "");
    EXPECT_EQ(server.call(credentials_of(ours().sign("client"))),
              "the peer has a secret, and this engine has no secret");
    EXPECT_EQ(server.call(credentials_of(ours().sign("client"), word + "!")),
              "the peer's secret differs from this engine's");
}

TEST(TlsServer, DataConnectionsAndLeasesAreTlsToo) {
    const TlsServer server(credentials_of(ours().sign("server")));
    const Credentials client = credentials_of(ours().sign("client"));
    const uint64_t deadline = monotonic_ns() + 5 * kSecond;
    std::string why;
    Stream data = open_connection(server.address, Purpose::kData, client, deadline, &why);
    ASSERT_TRUE(data.is_open()) << why;
    char text[4] = {};
    EXPECT_TRUE(data.send("data", 4, deadline));
    EXPECT_TRUE(data.receive(text, 4, deadline));
    EXPECT_EQ(std::string(text, 4), "data");
    char byte;
    while (data.receive_some(&byte, 1) == 0 && data.wait(deadline)) {
    }
    EXPECT_EQ(data.receive_some(&byte, 1), -1) << "the other end has closed it";
    EXPECT_EQ(server.data.load(), 1);

    Stream lease = open_connection(server.address, Purpose::kControl, client, deadline, &why);
    EXPECT_TRUE(exchange(lease, 1, MessageType::kLease, {{"owner", "x"}}, deadline));
    EXPECT_EQ(server.ended.load(), 0);
    lease.close();
    for (int i = 0; i < 10000 && server.ended.load() == 0; ++i) usleep(1000);
    EXPECT_EQ(server.ended.load(), 1);
}

}  // namespace rove::tent
