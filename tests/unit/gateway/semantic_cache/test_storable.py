"""Which questions are kept: not those whose answer changes, is the asker's alone, or needs an earlier turn."""

import pytest

from tribar.gateway.semantic_cache.guards import GUARDS
from tribar.gateway.semantic_cache.judge import why_not_stored
from tribar.gateway.semantic_cache.reading import read
from tribar.gateway.semantic_cache.verdict import Features

VOLATILE = """what's the weather in London today|will it rain tomorrow
current price of gold|latest iPhone news|what time is it
bitcoin price|who won the game last night|is the site down
traffic on the M25|Tesla stock price|what is the exchange rate of the euro
what happened this week in politics|most recent release of Node
is it snowing in Oslo|what day is it|tickets left for the concert
现在几点了|今天天气怎么样|最新的苹果手机是哪款|美元汇率|今天几号|明天会下雨吗
现在油价多少|最近有什么新闻|茅台股价|昨天的比赛谁赢了
实时路况|这周末有什么活动|当前的贷款利率|北京空气质量|比特币多少钱|目前疫情情况"""
PERSONAL = """where is my order|what is my balance
when does my subscription end|how much data do I have left|did I pass the exam
what's my name|show me my invoices|am I eligible for a refund
restaurants near me|my order has not arrived|when is my next appointment
how many points do I have left|what grade did I get|do I owe anything|track my parcel|is my application approved
我的订单到哪了|我还有多少流量|我的余额是多少|我的快递什么时候到|我叫什么名字
我上次买的是什么|附近有什么餐厅|我的成绩出来了吗|我欠了多少钱
我家孩子在哪个班|我的预约是几点|我的退款到账了吗|我什么时候还款|我的会员几号到期|我名下有几套房"""
FOLLOW_UPS = """make it shorter|and the second one?|what about Tuesday
explain that again|translate it into French|another example
why?|go on|continue|shorter please|再详细一点|那第二个呢|继续|换一个|为什么呢|翻译成英文|短一点|它是什么意思"""
STORED = """how do I get a refund|what is the capital of France
how to reset my password|how do I change my shipping address
what documents do I need to renew my passport
can I bring my dog on the train|how does photosynthesis work|write a haiku about rain
why is my phone battery draining fast|how to cook rice
difference between TCP and UDP|is it safe to eat raw eggs|who wrote Hamlet
how do you say hello in Japanese|what should I do if I lose my card
how do I know if an egg is bad|how many ounces in a pound
my sink is clogged, how do I clear it|how does the stock market work
怎么退款|法国的首都是哪里|如何重置密码|怎么修改收货地址|护照过期了怎么续签
我的手机打不开怎么办|猫为什么打呼噜|如何写简历|长城有多长
光合作用是什么|谁写了哈姆雷特|孕妇可以吃螃蟹吗|怎么煮米饭|公积金怎么提取|信用卡丢了怎么办
TCP和UDP的区别|什么是通货膨胀|红酒怎么保存"""


def each(listed: str) -> list[str]:
    return [text for line in listed.splitlines() for text in line.split("|")]


def reason(text: str) -> str:
    reading = read(text)
    slots = {guard.name: found for guard in GUARDS if (found := guard.find(reading))}
    return why_not_stored(Features(reading.text, "", reading.language, "en", (), (), slots, b""))


@pytest.mark.parametrize("text", each(VOLATILE))
def test_answers_that_will_change_are_not_kept(text: str) -> None:
    assert reason(text) == "volatile"


@pytest.mark.parametrize("text", each(PERSONAL))
def test_answers_that_are_the_askers_alone_are_not_kept(text: str) -> None:
    assert reason(text) in {"personal", "volatile"}


@pytest.mark.parametrize("text", each(FOLLOW_UPS))
def test_answers_to_follow_ups_are_not_kept_without_context(text: str) -> None:
    assert reason(text) in {"context", "volatile"}


@pytest.mark.parametrize("text", each(STORED))
def test_everybodys_questions_are_kept(text: str) -> None:
    assert reason(text) == ""
