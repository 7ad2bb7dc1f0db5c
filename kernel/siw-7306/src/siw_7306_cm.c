// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* Connections. */

#include "siw.h"
#include "siw_cm.h"

/*
 * siw_7306_state is the state of a socket whose callback uses cep. The sockets that TCP makes for a listener come with the listener's
 * endpoint as their own until siw accepts them. Their end is not that of the listener, so it looks as if nothing has happened to it.
 */
int siw_7306_state(struct siw_cep *cep, struct sock *sk)
{
	struct socket *s = READ_ONCE(cep->sock);

	if (sk->sk_state != TCP_ESTABLISHED && (!s || s->sk != sk))
		return TCP_LISTEN;
	return sk->sk_state;
}

/* siw_7306_no_word reports whether a Reply lacks the enhanced word that it must have (RFC 6581 section 9), and forgets its data. */
bool siw_7306_no_word(struct siw_cep *cep)
{
	if (cep->mpa.pdata && be16_to_cpu(cep->mpa.hdr.params.pd_len) >= sizeof(struct mpa_v2_data))
		return false;
	cep->mpa.hdr.params.pd_len = 0;
	return true;
}

/* siw_7306_has_data reports whether the private data of a Request or Reply, without the enhanced word, have come as a whole. */
bool siw_7306_has_data(struct siw_cep *cep)
{
	u16 pd_len = be16_to_cpu(cep->mpa.hdr.params.pd_len);

	return cep->mpa.pdata && cep->mpa.bytes_rcvd == sizeof(struct mpa_rr) + pd_len &&
	       (!cep->enhanced_rdma_conn_est || pd_len >= sizeof(struct mpa_v2_data));
}

/* siw_7306_look receives what has arrived before the receive path was ready. */
void siw_7306_look(struct siw_cep *cep)
{
	struct sock *sk = cep->sock->sk;

	lock_sock(sk);
	local_bh_disable();
	if (!skb_queue_empty(&sk->sk_receive_queue))
		sk->sk_data_ready(sk);
	local_bh_enable();
	release_sock(sk);
}

/*
 * siw_7306_say tells whether an event may go to iw_cm, which wants to hear of a connection once, before it hears of its end. The end
 * comes from a process, the connection also from the callback of its socket.
 */
enum siw_7306_said siw_7306_say(struct siw_cep *cep, int reason)
{
	struct socket *s = cep->sock;

	switch (reason) {
	case IW_CM_EVENT_ESTABLISHED:
		return xchg(&cep->told, true) ? SIW_7306_SAID : SIW_7306_GO_ON;
	case IW_CM_EVENT_CONNECT_REPLY:
		cep->told = true;
		break;
	case IW_CM_EVENT_DISCONNECT:
	case IW_CM_EVENT_CLOSE:
		/* Wait for a callback that is about to tell. */
		if (s) {
			write_lock_bh(&s->sk->sk_callback_lock);
			write_unlock_bh(&s->sk->sk_callback_lock);
		}
		if (cep->state == SIW_EPSTATE_RDMA_MODE && !READ_ONCE(cep->told))
			return SIW_7306_UNSAID;
		break;
	}
	return SIW_7306_GO_ON;
}

/* siw_7306_assoc hands a socket whose first message has come to its QP, if it has not been taken away meanwhile. */
void siw_7306_assoc(struct sock *sk)
{
	struct siw_cep *cep;

	write_lock_bh(&sk->sk_callback_lock);
	cep = sk_to_cep(sk);
	if (cep && cep->sock && cep->qp) {
		cep->qp->attrs.sk = cep->sock;
		sk->sk_data_ready = siw_qp_llp_data_ready;
		sk->sk_write_space = siw_qp_llp_write_space;
	}
	write_unlock_bh(&sk->sk_callback_lock);
}

/* siw_7306_forget_qp parts an endpoint from its QP. No callback of the socket uses the QP afterwards. */
void siw_7306_forget_qp(struct siw_cep *cep)
{
	struct socket *s = cep->sock;

	if (s)
		write_lock_bh(&s->sk->sk_callback_lock);
	WRITE_ONCE(cep->qp, NULL);
	if (s)
		write_unlock_bh(&s->sk->sk_callback_lock);
}

/* siw_7306_resume goes on sending when the socket has room. The caller holds sk_callback_lock. */
void siw_7306_resume(struct siw_cep *cep)
{
	struct siw_qp *qp = READ_ONCE(cep->qp);

	if (qp)
		siw_sq_start(qp);
}
